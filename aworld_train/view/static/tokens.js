// The tokens of a training row, one by one, coloured by what training saw of them.
import { h } from './vendor/preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { button, div, label, option, p, select, span } from './elements.js';
import { changed, go } from './address.js';
import { useData } from './data.js';
import { number } from './format.js';
import { Failure, Waiting } from './parts.js';
import { leavesOf, pathTo } from './tree.js';

const COLOURINGS = ['mask', 'logprob', 'advantage'];
const SHOWN_CONTEXT = 600;

export function Tokens({ address, run, id, content }) {
  const { data, error } = useData('tokens', { run, episode: id });
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const rows = data.rows.length ? data.rows : paths(content);
  const number_ = Math.min(Number(address.get('row') ?? 0) || 0, rows.length - 1);
  const colouring = COLOURINGS.includes(address.get('colour')) ? address.get('colour') : 'mask';
  if (number_ < 0) return p({ class: 'dim' }, 'There are no tokens: the model was not called.');
  const row = rows[number_];
  const spans = spansOf(data, row);
  return div(
    div(
      { class: 'filters' },
      label(
        data.rows.length ? 'Row' : 'Conversation',
        select({ value: String(number_), onChange: (event) => go(changed({ row: event.target.value, position: null }), { replace: true }) }, rows.map((each, i) => option({ key: i, value: String(i) }, `${i} · ${content.agents[each.agent]?.name ?? ''}`))),
      ),
      label('Colour', select({ value: colouring, 'data-filter': 'colour', onChange: (event) => go(changed({ colour: event.target.value }), { replace: true }) }, COLOURINGS.map((each) => option({ key: each, value: each }, each)))),
      h(Legend, { colouring }),
    ),
    !data.rows.length && p({ class: 'dim' }, 'No training row was made of this episode; these are the conversations as they were sampled.'),
    data.note && p({ class: 'dim' }, data.note),
    h(Row, { spans, colouring, texts: data.texts, chosen: address.get('position'), strongest: strongest(spans) }),
  );
}

function paths(content) {
  return content.agents.flatMap((agent, i) => leavesOf(agent.nodes).map((leaf) => ({ agent: i, path: pathTo(agent.nodes, leaf), own: [], prompt_tokens: 0, advantage: null, advantages: [] })));
}

function spansOf(data, row) {
  let begin = 0;
  return row.path.map((node) => {
    const { ids, logprobs, count } = data.agents[row.agent][node];
    const own = row.own.includes(node);
    const from = begin;
    begin += count;
    const advantage = (i) => (own ? row.advantages[from + i - row.prompt_tokens] ?? row.advantage : null);
    return { ids, logprobs, own, sampled: logprobs !== null, count, from, advantage };
  });
}

function strongest(spans) {
  let most = 0;
  for (const each of spans) for (let i = 0; i < each.ids.length; i += 1) most = Math.max(most, Math.abs(each.advantage(i) ?? 0));
  return most || 1;
}

function Row({ spans, colouring, texts, chosen, strongest: most }) {
  const [pointed, setPointed] = useState(null);
  const at = pointed ?? (chosen === null ? null : Number(chosen));
  useEffect(() => {
    if (chosen !== null) document.querySelector(`[data-token="${Number(chosen)}"]`)?.scrollIntoView({ block: 'center' });
  }, [chosen]);
  const place = (event) => event.target.dataset?.token;
  return div(
    div({ class: 'readout', 'aria-live': 'polite' }, at === null ? 'Point at a token; click to keep it in the address.' : readout(spans, at, texts)),
    div(
      {
        class: `tokens by-${colouring}`,
        onMouseOver: (event) => place(event) !== undefined && setPointed(Number(place(event))),
        onMouseLeave: () => setPointed(null),
        onClick: (event) => place(event) !== undefined && go(changed({ position: place(event) }), { replace: true }),
      },
      spans.map((each) => h(Span, { key: each.from, each, colouring, texts, chosen, most })),
    ),
  );
}

function Span({ each, colouring, texts, chosen, most }) {
  const inside = chosen !== null && Number(chosen) >= each.from && Number(chosen) < each.from + each.count;
  const [whole, setWhole] = useState(false);
  if (!each.ids.length && each.count) return p({ class: 'dim' }, `${number(each.count)} tokens that are not kept, as a text was redacted`);
  const all = whole || inside || each.sampled || each.ids.length <= SHOWN_CONTEXT * 1.2;
  const ids = all ? each.ids : each.ids.slice(0, SHOWN_CONTEXT);
  return div(
    { class: each.sampled ? 'node-tokens sampled' : 'node-tokens' },
    ids.map((id, i) => {
      const text = texts ? texts[id] ?? `⟨${id}⟩` : String(id);
      const kept = chosen !== null && Number(chosen) === each.from + i ? ' kept' : '';
      return span({ key: i, class: `token ${texts ? '' : 'id '}${colour(each, i, colouring, most)}${kept}`, 'data-token': each.from + i }, text);
    }),
    !all && button({ class: 'more', onClick: () => setWhole(true) }, `and ${number(each.ids.length - SHOWN_CONTEXT)} more`),
  );
}

function colour(each, i, colouring, most) {
  if (!each.sampled) return 'context';
  if (colouring === 'mask') return each.own ? 'masked-in' : 'masked-out';
  if (colouring === 'logprob') return `p${Math.min(9, Math.floor(10 * Math.exp(Number(each.logprobs[i]))))}`;
  const advantage = each.advantage(i);
  if (advantage === null || advantage === undefined) return 'masked-out';
  return `${advantage < 0 ? 'minus' : 'plus'}${Math.round((4 * Math.abs(advantage)) / most)}`;
}

function readout(spans, at, texts) {
  const each = spans.find((one) => at >= one.from && at < one.from + one.count);
  if (!each || at - each.from >= each.ids.length) return `There is no token ${at}.`;
  const i = at - each.from;
  const parts = [`token ${at}`, `id ${each.ids[i]}`];
  if (texts) parts.push(JSON.stringify(texts[each.ids[i]] ?? ''));
  if (each.sampled) parts.push(`logprob ${number(each.logprobs[i], 4)} (${(100 * Math.exp(Number(each.logprobs[i]))).toFixed(1)} %)`);
  parts.push(each.own ? 'mask 1' : each.sampled ? 'mask 0, trained on in another row or not at all' : 'context, mask 0');
  if (each.own) parts.push(`advantage ${number(each.advantage(i), 4)}`);
  return parts.join(' · ');
}

function Legend({ colouring }) {
  const entries = {
    mask: [['masked-in', 'trained on'], ['masked-out', 'sampled, mask 0'], ['context', 'context']],
    logprob: [['p9', 'likely'], ['p5', 'even'], ['p0', 'unlikely'], ['context', 'context']],
    advantage: [['plus4', 'made likelier'], ['plus0', 'unchanged'], ['minus4', 'made less likely'], ['context', 'context']],
  }[colouring];
  return span({ class: `legend tokens by-${colouring}` }, entries.map(([kind, text]) => span({ key: kind, class: `token ${kind}` }, text)));
}
