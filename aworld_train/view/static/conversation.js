// One path through an agent's conversations, as its messages.
import { h } from './vendor/preact.js';
import { details, div, img, p, pre, span, summary } from './elements.js';
import { imageAddress } from './data.js';
import { duration, number, pretty } from './format.js';
import { Text } from './parts.js';

export function Conversation({ run, agent, path, uses }) {
  const byCall = new Map(uses.filter((use) => use.call_id).map((use) => [use.call_id, use]));
  const callOf = new Map(agent.calls.map((call, i) => [call.node, { ...call, number: i + 1 }]));
  return div(
    { class: 'conversation' },
    path.map((index) => h(Node, { key: index, run, node: agent.nodes[index], call: callOf.get(index), byCall })),
  );
}

function Node({ run, node, call, byCall }) {
  return div(
    { class: node.sampled ? 'node sampled' : 'node' },
    node.messages.map((message, i) => h(Message, { key: i, run, message, node, call: i === node.messages.length - 1 ? call : null, use: byCall.get(message.call_id), byCall })),
    node.redacted && p({ class: 'dim' }, 'A text was redacted here, so its tokens are not kept.'),
  );
}

function Message({ run, message, node, call, use, byCall }) {
  const turn = [
    call && `turn ${call.number}`,
    node.sampled && `${number(node.tokens)} tokens`,
    call && duration(call.seconds),
    node.versions && `weights of step ${node.parts.length ? node.parts.map(([begin, step]) => `${step} from token ${begin}`).join(', ') : node.versions[0] === node.versions[1] ? node.versions[0] : node.versions.join('–')}`,
    call && call.finish_reason,
    call && call.malformed && 'malformed',
    node.stop && `stopped at ${JSON.stringify(node.stop)}`,
    !node.ended && 'not ended by the model',
    !node.received && 'not received',
    ...(call?.misses ?? []),
  ].filter(Boolean);
  return div(
    { class: `message ${role(message.role)}`, 'data-role': message.role },
    div({ class: 'who' }, span({ class: 'role' }, message.role), message.name && span({ class: 'tool-name', dir: 'auto' }, message.name), use && h(Use, { use }), turn.length > 0 && span({ class: 'dim' }, turn.join(' · '))),
    message.reasoning && details({ class: 'thought' }, summary(`Thought, ${number(message.reasoning.length)} characters`), h(Text, null, message.reasoning)),
    message.content && h(Text, { class: use?.is_error ? 'error' : '' }, message.content),
    message.images.map((digest, i) => h(Image, { key: i, run, digest })),
    message.tool_calls.map((each, i) => h(Call, { key: i, call: each, use: byCall.get(each.call_id) })),
    use && use.result !== message.content && details({ class: 'thought' }, summary('The result before it was shortened for the model'), h(Text, null, use.result)),
  );
}

function role(name) {
  return ['system', 'user', 'assistant', 'tool'].includes(name) ? name : 'other';
}

function Call({ call, use }) {
  return div({ class: 'call' }, div(span({ class: 'tool-name', dir: 'auto' }, `→ ${call.name}`), use && h(Use, { use })), pre({ class: 'text', dir: 'auto' }, pretty(call.arguments)));
}

export function Use({ use }) {
  return span(
    { class: 'use' },
    use.is_error ? span({ class: 'badge bad' }, 'error') : null,
    use.replayed && span({ class: 'badge plain' }, 'from the cassette'),
    span({ class: 'dim' }, `${duration(use.seconds)}${use.server ? ` · ${use.server}` : ''}`),
  );
}

function Image({ run, digest }) {
  const address = imageAddress(run, digest);
  return address ? img({ class: 'picture', src: address, alt: `image ${digest.slice(0, 12)}`, loading: 'lazy' }) : p({ class: 'dim' }, `image ${digest.slice(0, 12)}, which this file does not hold`);
}
