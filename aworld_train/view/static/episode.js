// One episode: its conversations, its tokens, how it was scored, and how it was trained on.
import { h } from './vendor/preact.js';
import { useState } from './vendor/hooks.js';
import { button, details, div, h1, h2, h3, li, ol, p, pre, section, span, summary, table, tbody, td, th, thead, tr } from './elements.js';
import { Link, changed, go } from './address.js';
import { isLive, useData, useVersion } from './data.js';
import { Conversation, Use } from './conversation.js';
import { number, pretty, time } from './format.js';
import { filterOf, rewardClass, shown as shownFigure } from './episodes.js';
import { Badge, Facts, Failure, Tabs, Text, Waiting, counts } from './parts.js';
import { Tokens } from './tokens.js';
import { Tree, leavesOf, pathTo } from './tree.js';

export function EpisodePage({ address }) {
  const run = address.get('run');
  const id = address.get('episode');
  const shown = useData('episode', { run, episode: id });
  const running = shown.data?.head.status === 'running';
  const version = useVersion(running ? [run] : null);
  const again = useData(running && version ? 'episode' : null, { run, episode: id }, version);
  const data = again.data ?? shown.data;
  if (shown.error) return h(Failure, { message: shown.error });
  if (!data) return h(Waiting);
  const tab = address.get('tab') ?? 'conversation';
  return div(
    h(Head, { address, run, head: data.head }),
    h(
      Tabs,
      null,
      ['conversation', 'tokens', 'record'].map((each) => h(Link, { key: each, to: changed({ tab: each === 'conversation' ? null : each }), role: 'tab', 'aria-selected': String(each === tab) }, each)),
    ),
    div(
      { class: 'episode' },
      div(
        { class: 'column' },
        !data.content && h(NoContent, { head: data.head }),
        data.content && tab === 'conversation' && h(Conversations, { address, run, content: data.content }),
        data.content && tab === 'tokens' && h(Tokens, { address, run, id, content: data.content }),
        tab === 'record' && h(Record, { data }),
      ),
      div({ class: 'side' }, h(Side, { run, data })),
    ),
  );
}

function Head({ address, run, head }) {
  const at = address.get('at');
  return div(
    { class: 'head' },
    h1(`Task #${head.index}`, span({ class: 'dim' }, ` · step ${head.step} · ${head.phase} · attempt ${head.attempt}`)),
    h(Badge, { kind: head.outcome ?? head.status }),
    head.reward !== null && span({ class: `reward ${rewardClass(head.reward)}` }, `reward ${number(head.reward)}`),
    at !== null && h(Neighbours, { run, address, at: Number(at) || 0 }),
  );
}

function Neighbours({ run, address, at }) {
  // The list that the reader came from, around its present place in it.
  const filter = filterOf(address);
  const first = Math.max(0, at - 1);
  const { data } = useData('episodes', { run, ...filter, offset: first, limit: 3 });
  const tab = address.get('tab');
  const to = (place) => {
    const found = data?.episodes[place - first];
    return found && place >= 0 && found.id !== address.get('episode') ? { run, episode: found.id, at: place, tab, ...filter } : null;
  };
  const link = (target, name, text) => (target ? h(Link, { to: target, 'data-neighbour': name, title: text, replace: true }, name === 'previous' ? '↑ previous' : 'next ↓') : span({ class: 'dim' }, name === 'previous' ? '↑ previous' : 'next ↓'));
  return span(
    { class: 'neighbours' },
    link(to(at - 1), 'previous', 'k'),
    link(to(at + 1), 'next', 'j'),
    h(Link, { to: { run, view: 'episodes', ...filter, offset: 100 * Math.floor(at / 100) || null }, 'data-list': true }, 'list'),
  );
}

function NoContent({ head }) {
  return p({ class: 'dim' }, head.status === 'running' ? 'This episode goes on; what is said in it is kept when it is over.' : 'What was said in this episode is not kept; its figures are.');
}

export function Conversations({ address, run, content }) {
  const agents = content.agents;
  const chosen = Math.min(Number(address?.get('agent') ?? 0) || 0, agents.length - 1);
  const [leaf, setLeaf] = useState({});
  if (chosen < 0) return p({ class: 'dim' }, 'The model was not called.');
  const agent = agents[chosen];
  const leaves = leavesOf(agent.nodes);
  const end = leaf[chosen] ?? leaves.at(-1);
  return div(
    agents.length > 1 &&
      address &&
      h(Tabs, null, agents.map((each, i) => h(Link, { key: i, to: changed({ agent: i || null }), role: 'tab', 'aria-selected': String(i === chosen) }, `${each.name} (${each.calls.length})`))),
    leaves.length > 1 && h(Tree, { agent, leaf: end, choose: (each) => setLeaf({ ...leaf, [chosen]: each }) }),
    agent.nodes.length ? h(Conversation, { run, agent, path: pathTo(agent.nodes, end), uses: content.tool_calls }) : p({ class: 'dim' }, 'The model was not called.'),
  );
}

function Side({ run, data }) {
  const { head } = data;
  return [
    h(Score, { key: 'score', data }),
    section(
      { class: 'card', key: 'training' },
      h2('Training'),
      h(Facts, {
        values: [
          ['treatment', head.treatment],
          ['trained in step', head.trained_step],
          ['advantage', head.advantage !== null && number(head.advantage, 4)],
          ['cause', head.treatment === 'dropped' && head.cause],
          ['weights', head.weights_first !== null && (head.weights_first === head.weights_last ? `step ${head.weights_first}` : `steps ${head.weights_first}–${head.weights_last}`)],
        ],
      }),
      data.rows.length > 0 && h(Rows, { rows: data.rows }),
    ),
    h(Figures, { key: 'figures', data }, p(h(Link, { to: { run, task: head.task } }, isLive() ? 'All attempts at this task' : 'This task'))),
    h(ToolUses, { key: 'tools', data }),
  ];
}

export function Score({ data: { head, content } }) {
  const score = content?.score;
  return section(
    { class: 'card' },
    h2('Score'),
    h(Facts, {
      values: [
        ['reward', span({ class: rewardClass(head.reward) }, number(head.reward))],
        ['accuracy', head.accuracy !== head.reward && head.accuracy !== null && number(head.accuracy)],
        ['scorer', score?.scorer || head.scorer],
        ['scoring', score?.outcome || head.scoring],
        ['extracted', score?.extracted],
        ['right answer', head.correct_answer],
        ['parts', score && counts(score.parts)],
        ['cause', score?.cause ?? head.cause],
        ['suspicions', head.suspicions.join(', ')],
      ],
    }),
    score?.steps.length > 0 && details({ open: true }, summary('Steps of the scorer'), ol({ class: 'steps' }, score.steps.map((step, i) => li({ key: i, dir: 'auto' }, step)))),
    content?.answer && details(summary('Answer'), h(Text, null, content.answer)),
  );
}

export function Figures({ data: { head, line, figures }, children }) {
  const values = { ...line, ...head };
  return section(
    { class: 'card' },
    h2('Figures'),
    h(Facts, {
      values: [
        ...figures.map((figure) => [figure.label, (values[figure.name] ?? null) !== null && shownFigure(figure, values[figure.name])]),
        ['began', time(head.began)],
        ['status', head.status],
        ['id', head.id],
      ],
    }),
    children,
  );
}

export function ToolUses({ data: { content } }) {
  if (!content?.tool_calls.length) return null;
  return section({ class: 'card' }, h2('Tool calls'), content.tool_calls.map((use, i) => h(ToolUse, { key: i, use })));
}

function ToolUse({ use }) {
  return details({ class: 'tool-use' }, summary(span({ class: 'tool-name', dir: 'auto' }, use.name), h(Use, { use })), h3('Arguments'), pre({ class: 'text', dir: 'auto' }, pretty(use.arguments)), h3('Result'), h(Text, { class: use.is_error ? 'error' : '' }, use.result));
}

function Rows({ rows }) {
  return table(
    { class: 'small' },
    thead(tr(['row', 'step', 'place', 'under the mask', 'advantage'].map((name) => th({ key: name }, name)))),
    tbody(rows.map((row, i) => tr({ key: i }, td(i), td(number(row.trained_step)), td(number(row.position)), td(number(row.masked_in)), td(number(row.advantage, 4))))),
  );
}

function Record({ data }) {
  const parts = [
    ['Tools that the model could call', Object.values(data.tools).flat()],
    ['Other figures', data.line],
    ['Head', data.head],
  ].filter(([, value]) => Object.keys(value).length);
  return div(parts.map(([name, value]) => section({ key: name }, h2(name), h(Text, null, JSON.stringify(value, null, 2)))));
}
