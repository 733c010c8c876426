// The list of a run's episodes: filters, search, order, and pages of a hundred.
import { h } from './vendor/preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { button, div, form, input, label, option, p, section, select, span, table, tbody, td, th, thead, tr } from './elements.js';
import { Link, changed, go } from './address.js';
import { isLive, useData, usePages } from './data.js';
import { duration, number, time } from './format.js';
import { Badge, Failure, Waiting, counts } from './parts.js';

const PAGE = 100;
export const FILTERS = ['step', 'phase', 'outcome', 'treatment', 'status', 'scorer', 'tool', 'suspicion', 'task', 'reward_min', 'reward_max', 'where', 'search', 'searched', 'superseded', 'sort', 'order'];
// Words and order of the columns around the figures that the list itself names.
const FIRST = [
  ['step', 'step'],
  ['phase', null],
  ['task', 'index'],
  ['outcome', 'outcome'],
  ['reward', 'reward'],
  ['advantage', 'advantage'],
];
const LAST = [
  ['question', null],
  ['began (UTC)', 'began'],
];

const LEFT = ['phase', 'outcome', 'question', 'began (UTC)'];

export function filterOf(address) {
  const found = {};
  for (const name of FILTERS) if (address.get(name)) found[name] = address.get(name);
  return found;
}

export function Episodes({ address, version }) {
  const run = address.get('run');
  const filter = filterOf(address);
  const offset = Number(address.get('offset') ?? 0) || 0;
  const list = usePages('episodes', { run, ...filter, offset, limit: PAGE }, version);
  const count = usePages('count', { run, ...filter }, version);
  const values = usePages('values', { run }, version);
  const shown = list.data?.episodes.length ?? 0;
  const searched = list.data?.searched;
  const isWhole = list.data && !list.waiting && !searched && shown < PAGE && (shown || !offset); // then its end is the number
  const total = isWhole ? { count: offset + shown } : count.data;
  return section(
    h(FilterBar, { filter, values: values.data }),
    h(Failure, { message: list.error }),
    searched && p({ class: 'dim' }, `Of the newest ${number(searched)} episodes. `, button({ class: 'more', 'data-search-all': true, onClick: () => go(changed({ searched: 'all', offset: null }), { replace: true }) }, 'Search all')),
    !list.data && !list.error && h(Waiting),
    list.data && h(EpisodeTable, { run, ...list.data, filter, offset, waiting: list.waiting }),
    list.data && h(Pager, { offset, shown, count: total?.count ?? null, more: total?.more }),
  );
}

function FilterBar({ filter, values }) {
  const set = (changes) => go(changed({ ...changes, offset: null }), { replace: true });
  const choice = (name, text, entries) =>
    label(
      text,
      select({ value: filter[name] ?? '', 'data-filter': name, onChange: (event) => set({ [name]: event.target.value }) }, option({ value: '' }, 'any'), entries.map(([value, shown]) => option({ key: value, value }, shown))),
    );
  const counted = (name) => withChosen(Object.entries(values?.[name] ?? {}), filter[name]).map(([value, count]) => [value, count ? `${value} (${number(count)})` : value]);
  const steps = [...new Set((values?.steps ?? []).map((each) => each[1]))].map((step) => [String(step), String(step)]);
  return form(
    { class: 'filters', onSubmit: (event) => event.preventDefault() },
    h(Typed, { name: 'search', text: 'Search', placeholder: 'text of an episode', value: filter.search, set, search: true }),
    isLive() && h(Typed, { name: 'where', text: 'Condition', placeholder: 'outcome=timeout and tool=search', value: filter.where, set }),
    choice('step', 'Step', filter.step && !steps.some(([step]) => step === filter.step) ? [...steps, [filter.step, filter.step]] : steps),
    choice('phase', 'Phase', counted('phase')),
    choice('outcome', 'Outcome', counted('outcome')),
    label('Reward', span({ class: 'pair' }, h(Typed, { name: 'reward_min', placeholder: 'least', value: filter.reward_min, set, small: true }), h(Typed, { name: 'reward_max', placeholder: 'most', value: filter.reward_max, set, small: true }))),
    choice('tool', 'Tool', counted('tool')),
    choice('scorer', 'Scorer', counted('scorer')),
    choice('suspicion', 'Suspicion', counted('suspicion')),
    Object.keys(filter).some((name) => !['sort', 'order'].includes(name)) &&
      button({ type: 'button', class: 'more', onClick: () => set(Object.fromEntries(FILTERS.map((name) => [name, null]))) }, 'Clear'),
  );
}

function withChosen(entries, chosen) {
  return chosen && !entries.some(([value]) => value === chosen) ? [...entries, [chosen, 0]] : entries;
}

function Typed({ name, text, value, set, placeholder, search = false, small = false }) {
  // Applied when Enter is pressed or the field is left: a search of all texts is no work for every key.
  const [typed, setTyped] = useState(value ?? '');
  useEffect(() => setTyped(value ?? ''), [value]);
  const apply = () => typed.trim() !== (value ?? '') && set({ [name]: typed.trim(), ...(search && { searched: null }) });
  const field = input({
    type: search ? 'search' : 'text',
    class: small ? 'small' : '',
    'data-search': search || undefined,
    'data-filter': name,
    'aria-label': text ?? `${name.replace('_', ' ')}`,
    placeholder,
    value: typed,
    dir: 'auto',
    spellcheck: false,
    onInput: (event) => setTyped(event.target.value),
    onKeyDown: (event) => event.key === 'Enter' && apply(),
    onBlur: apply,
  });
  return text ? label({ class: 'typed' }, text, field) : field;
}

function EpisodeTable({ run, episodes, figures, filter, offset, waiting }) {
  const sorted = filter.sort ?? 'began';
  const down = (filter.order ?? 'down') === 'down';
  const order = (name) => go(changed({ sort: name, order: name === sorted && down ? 'up' : 'down', offset: null }), { replace: true });
  const listed = figures.filter((figure) => figure.is_listed);
  const columns = [...FIRST, ...listed.map((figure) => [figure.label, figure.name]), ...LAST];
  if (!episodes.length) return p({ class: 'dim', 'data-empty': true }, waiting ? 'Reading …' : 'No episodes match.');
  return div(
    { class: 'busy-while', 'aria-busy': String(waiting) },
    table(
      { class: 'list episodes' },
      thead(
        tr(
          columns.map(([name, sort]) =>
            th({ key: name, class: LEFT.includes(name) ? '' : 'figure', 'aria-sort': sort === sorted ? (down ? 'descending' : 'ascending') : undefined }, sort ? button({ class: 'sort', type: 'button', onClick: () => order(sort) }, name, sort === sorted ? (down ? ' ↓' : ' ↑') : '') : name),
          ),
        ),
      ),
      tbody(episodes.map((episode, i) => h(EpisodeRow, { key: episode.id, run, episode, figures: listed, to: { run, episode: episode.id, at: offset + i, ...filter } }))),
    ),
  );
}

export function EpisodeRow({ run, episode, figures, to }) {
  const open = (event) => {
    if (event.target.closest('a, button') || getSelection().toString()) return;
    go(to);
    window.scrollTo(0, 0);
  };
  return tr(
    { 'data-row': true, 'data-episode': episode.id, onClick: open, class: 'open' },
    td({ class: 'figure' }, episode.step),
    td(episode.phase),
    td({ class: 'figure' }, h(Link, { to: { run, task: episode.task }, title: 'The attempts at this task' }, `#${episode.index}`), span({ class: 'dim' }, `.${episode.attempt}`)),
    td(h(Badge, { kind: episode.outcome ?? episode.status }), episode.suspicions.length > 0 && span({ class: 'badge warn', title: episode.suspicions.join(', ') }, '!')),
    td({ class: `figure ${rewardClass(episode.reward)}` }, number(episode.reward)),
    td({ class: 'figure' }, number(episode.advantage)),
    figures.map((figure) => td({ key: figure.name, class: 'figure' }, shown(figure, episode[figure.name]))),
    td({ class: 'question', dir: 'auto' }, h(Link, { to }, episode.question || episode.id)),
    td({ class: 'dim' }, time(episode.began)),
  );
}

export function shown({ unit }, value) {
  // A figure of an episode as its unit asks for; counts by kind are one text.
  if (unit === 'seconds') return duration(value);
  if (unit === 'errors') return value ? span({ class: 'bad-text' }, number(value)) : '';
  return value !== null && typeof value === 'object' ? counts(value) : number(value);
}

export function rewardClass(reward) {
  return typeof reward !== 'number' ? '' : reward > 0.5 ? 'right' : reward <= 0 ? 'wrong' : '';
}

function Pager({ offset, shown, count, more }) {
  const last = offset + shown;
  const total = count === null ? '…' : more ? `${number(Math.max(count, last))}+` : number(count);
  const move = (to) => {
    go(changed({ offset: to || null }));
    window.scrollTo(0, 0);
  };
  return div(
    { class: 'pager' },
    button({ disabled: offset === 0, onClick: () => move(Math.max(0, offset - PAGE)), 'aria-label': 'Previous page' }, '←'),
    span({ 'data-count': count ?? '' }, shown ? `${number(offset + 1)}–${number(last)} of ${total}` : total),
    button({ disabled: shown < PAGE || (count !== null && !more && last >= count), onClick: () => move(offset + PAGE), 'aria-label': 'Next page' }, '→'),
  );
}
