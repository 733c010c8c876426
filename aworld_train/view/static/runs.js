// The list of runs, and several of them beside one another.
import { h } from './vendor/preact.js';
import { useState } from './vendor/hooks.js';
import { button, code, div, h1, h2, input, p, section, small, span, table, tbody, td, th, thead, tr } from './elements.js';
import { Link, changed, go } from './address.js';
import { useData, usePages, useVersion } from './data.js';
import { Chart } from './charts.js';
import { NONE, accuracy, duration, number, percent } from './format.js';
import { Badge, Failure, Sparkline, Waiting } from './parts.js';

export function RunList({ address }) {
  const version = useVersion([]);
  const { data, error } = usePages('runs', {}, version);
  const [selected, setSelected] = useState([]);
  const wanted = (address.get('name') ?? '').toLowerCase();
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const shown = data.runs.filter((run) => run.name.toLowerCase().includes(wanted));
  const choose = (name) => setSelected(selected.includes(name) ? selected.filter((each) => each !== name) : [...selected, name]);
  return div(
    div(
      { class: 'head' },
      h1('Runs'),
      small({ class: 'dim' }, data.folder),
      input({
        type: 'search',
        'data-search': true,
        placeholder: 'Name',
        'aria-label': 'Name of a run',
        value: address.get('name') ?? '',
        onInput: (event) => go(changed({ name: event.target.value }), { replace: true }),
      }),
      button({ class: 'main', disabled: selected.length < 2, onClick: () => go({ compare: selected }) }, `Compare ${selected.length || ''}`),
    ),
    shown.length === 0 && p({ class: 'dim' }, data.runs.length ? 'No run has this name.' : 'There are no runs in this folder yet.'),
    shown.length > 0 &&
      table(
        { class: 'list runs' },
        thead(tr(['', 'run', 'status'].map((name) => th(name)), ['steps', 'accuracy before', 'after', 'reward'].map((name) => th({ class: 'figure' }, name)), th(''), ['alarms', 'time'].map((name) => th({ class: 'figure' }, name)), th('began (UTC)'))),
        tbody(shown.map((run) => h(RunRow, { key: run.name, run, chosen: selected.includes(run.name), choose }))),
      ),
  );
}

function RunRow({ run, chosen, choose }) {
  return tr(
    { 'data-row': true },
    td(input({ type: 'checkbox', checked: chosen, 'aria-label': `Compare ${run.name}`, onChange: () => choose(run.name) })),
    td({ class: 'name' }, h(Link, { to: { run: run.name }, dir: 'auto' }, run.name), run.subject && small({ class: 'dim', dir: 'auto' }, run.subject), run.error && small({ class: 'bad-text', title: run.error, dir: 'auto' }, run.error)),
    td(h(Badge, { kind: run.status })),
    td({ class: 'figure' }, run.steps_planned ? `${number(run.steps_done)} / ${number(run.steps_planned)}` : NONE),
    td({ class: 'figure', title: accuracy(run.before) }, run.before ? percent(run.before.accuracy) : NONE),
    td({ class: 'figure', title: accuracy(run.after) }, run.after ? percent(run.after.accuracy) : NONE),
    td({ class: 'figure' }, number(run.reward)),
    td(h(Sparkline, { values: run.rewards, label: 'reward' })),
    td({ class: 'figure' }, run.alarms ? span({ class: 'bad-text' }, run.alarms) : ''),
    td({ class: 'figure' }, duration(run.seconds)),
    td({ class: 'dim' }, (run.started ?? '').replace('T', ' ').replace('Z', '')),
  );
}

const TITLES = {
  reward: 'Reward',
  val_accuracy: 'Validation accuracy',
  loss: 'Loss',
  kl: 'KL to the reference',
  teacher_kl: 'KL to the teacher',
  entropy: 'Entropy',
  grad_norm: 'Gradient norm',
  staleness: 'Staleness (steps)',
  max_staleness: 'Greatest staleness (steps)',
  response_tokens: 'Response (tokens)',
  turns: 'Turns',
  seconds: 'Seconds a step',
  tokens_per_second: 'Tokens per second',
};

export function title(name) {
  return TITLES[name] ?? name;
}

export function Compare({ address }) {
  const names = address.getAll('compare');
  const version = useVersion(names);
  const { data, error } = usePages('compare', { run: names }, version);
  const common = useData('common', { run: names }, '');
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const { runs, differences, series } = data;
  const keys = Object.keys(differences);
  const order = ['val_accuracy', 'reward'];
  const figures = [...order.filter((name) => series[name]), ...Object.keys(series).filter((name) => !order.includes(name))];
  return div(
    div({ class: 'head' }, h1('Comparison')),
    table(
      { class: 'list compare' },
      thead(tr(th(''), runs.map((run, i) => th({ key: run.name }, span({ class: `swatch line-${i % 8}` }), h(Link, { to: { run: run.name } }, run.name))))),
      tbody(
        [
          ['status', (run) => h(Badge, { kind: run.status })],
          ['model or agent', (run) => span({ dir: 'auto' }, run.subject)],
          ['steps', (run) => `${number(run.steps_done)} / ${number(run.steps_planned)}`],
          ['accuracy before', (run) => accuracy(run.before)],
          ['accuracy after', (run) => accuracy(run.after)],
          ['reward, last step', (run) => number(run.reward)],
          ['time', (run) => duration(run.seconds)],
        ].map(([name, value]) => tr({ key: name }, th(name), runs.map((run) => td({ key: run.name }, value(run))))),
        keys.length > 0 && tr({ class: 'divider' }, th({ colspan: runs.length + 1 }, 'Keys in which their recipes differ')),
        keys.map((key) => tr({ key }, th(code(key)), differences[key].map((value, i) => td({ key: i }, value === null ? span({ class: 'dim' }, NONE) : code({ dir: 'auto' }, typeof value === 'string' ? value : JSON.stringify(value)))))),
      ),
    ),
    keys.length === 0 && p({ class: 'dim' }, 'Their recipes differ in nothing but the name.'),
    div(
      { class: 'charts' },
      figures.map((name) =>
        h(Chart, { key: name, title: title(name), lines: series[name].map((points, i) => ({ label: runs[i].name, points })), format: name === 'val_accuracy' ? percent : number }),
      ),
    ),
    runs.length > 1 && h(CommonTasks, { runs, tasks: common.data?.tasks ?? [] }),
  );
}

function CommonTasks({ runs, tasks }) {
  if (!tasks.length) return null;
  return section(
    h2('Tasks in common, the most different first'),
    table(
      { class: 'list' },
      thead(tr(th('task'), th('question'), runs.map((run) => th({ key: run.name, class: 'figure' }, run.name)), th(''))),
      tbody(
        tasks.map((task) =>
          tr(
            { key: task.id, 'data-row': true },
            td({ class: 'figure' }, `#${task.index}`),
            td({ class: 'question', dir: 'auto' }, task.question),
            task.rewards.map((reward, i) => td({ key: i, class: 'figure' }, `${number(reward)} (${task.episodes[i]})`)),
            td(h(Link, { to: { run: runs[0].name, task: task.id, with: runs.slice(1).map((run) => run.name) } }, 'side by side')),
          ),
        ),
      ),
    ),
  );
}
