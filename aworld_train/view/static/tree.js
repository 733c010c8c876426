// Conversations that branch: the nodes as a tree, of which one path is read at a time.
import { h } from './vendor/preact.js';
import { button, div, h3, li, p, span, ul } from './elements.js';

export function leavesOf(nodes) {
  const parents = new Set(nodes.map((node) => node.parent));
  return nodes.map((_, i) => i).filter((i) => !parents.has(i));
}

export function pathTo(nodes, leaf) {
  const path = [];
  for (let at = leaf; at >= 0 && path.length <= nodes.length; at = nodes[at].parent) path.unshift(at);
  return path;
}

export function Tree({ agent, leaf, choose }) {
  const { nodes, branches } = agent;
  const chosen = new Set(pathTo(nodes, leaf));
  const children = (parent) => nodes.map((_, i) => i).filter((i) => nodes[i].parent === parent);
  // A chain without a fork is one item, so that depth is the number of forks and not of turns.
  const item = (first) => {
    const chain = [first];
    while (children(chain.at(-1)).length === 1) chain.push(children(chain.at(-1))[0]);
    const end = chain.at(-1);
    const below = children(end);
    const target = below.length ? leavesOf(nodes).find((each) => pathTo(nodes, each).includes(end)) : end;
    return li(
      { key: first, role: 'treeitem', 'aria-selected': String(chosen.has(end)) },
      button({ class: chosen.has(end) ? 'chosen' : '', onClick: () => choose(target), dir: 'auto' }, chain.map((i) => span({ key: i, class: nodes[i].sampled ? 'step sampled' : 'step' }, label(nodes, i)))),
      below.length > 0 && ul({ role: 'group' }, below.map(item)),
    );
  };
  return div(
    { class: 'tree card' },
    h3('Branches'),
    ul({ role: 'tree' }, children(-1).map(item)),
    branches.map((branch, i) =>
      p({ key: i, class: 'branch', dir: 'auto' }, span({ class: 'badge warn' }, branch.cause), ` at message ${branch.message} ${branch.role}, character ${branch.position}: `, span({ class: 'quote' }, branch.recorded), ' became ', span({ class: 'quote' }, branch.sent)),
    ),
  );
}

function label(nodes, index) {
  const node = nodes[index];
  if (node.sampled) {
    const calls = node.messages.flatMap((message) => message.tool_calls.map((call) => call.name));
    const text = node.messages[0]?.content ?? '';
    return calls.length ? `→ ${calls.join(', ')}` : `assistant: ${text.slice(0, 40)}`;
  }
  const last = node.messages.at(-1);
  return last ? `${last.role}: ${last.content.slice(0, 40)}` : 'context';
}
