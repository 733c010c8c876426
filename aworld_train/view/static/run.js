// One run: its curves, episodes, tasks, and where it came from.
import { h } from './vendor/preact.js';
import { useState } from './vendor/hooks.js';
import { a, div, h1, h2, label, li, option, p, section, select, small, span, table, tbody, td, th, thead, tr, ul } from './elements.js';
import { Link, addressOf } from './address.js';
import { isLive, reportFacts, useData, usePages, useVersion } from './data.js';
import { Chart } from './charts.js';
import { Episodes } from './episodes.js';
import { accuracy, duration, number, percent } from './format.js';
import { Interval } from './eval_plots.js';
import { Badge, Facts, Failure, Tabs, Waiting, counts } from './parts.js';
import { title } from './runs.js';

// What the updates of a step were made of: the title, a first figure, and a second one that is a part of it or beside it.
const UPDATES = [
  ['Rows of a step', ['rows', 'trained'], ['padding_rows', 'padding, of no weight']],
  ['Updates of a step', ['updates', 'all'], ['clipped_updates', 'with a clipped gradient']],
  ['Groups of a step', ['groups', 'compared'], ['equal_groups', 'of equal rewards']],
  ['Episodes rejected by the correction', ['rejected_episodes', 'rejected']],
  ['Episodes left out for too old weights', ['stale_episodes', 'left out']],
  ['Tokens left out for too old weights', ['stale_tokens', 'left out']],
  ['Samplers that died', ['lost_samplers', 'replaced']],
];


export function RunPage({ address }) {
  const name = address.get('run');
  const version = useVersion([name]);
  const { data, error } = usePages('run', { run: name }, version);
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const { run, facts } = data;
  const first = facts.evaluation ? 'result' : 'curves';
  const view = address.get('view') ?? first;
  const shown = [first, data.has_store && 'episodes', data.has_store && isLive() && 'tasks', 'about'].filter(Boolean);
  return div(
    div(
      { class: 'head' },
      h1({ dir: 'auto' }, run.name),
      h(Badge, { kind: run.status }),
      small({ class: 'dim' }, [run.steps_planned ? `step ${number(run.steps_done)} of ${number(run.steps_planned)}` : '', run.seconds ? duration(run.seconds) : ''].filter(Boolean).join(' · ')),
      h(
        Tabs,
        null,
        shown.map((each) => h(Link, { key: each, to: { run: name, view: each === first ? null : each }, role: 'tab', 'aria-selected': String(each === view) }, each)),
      ),
    ),
    (view === first || view === 'about') && h(Alarms, { alarms: facts.alarms, error: run.error }),
    view === 'result' && h(Result, { run, evaluation: facts.evaluation }),
    view === 'curves' && h(Curves, { name, data, version }),
    view === 'episodes' && (data.has_store ? h(Episodes, { address, version }) : h(NoStore)),
    view === 'tasks' && h(Tasks, { name, version, page: Number(address.get('page') ?? 0) }),
    view === 'about' && h(About, { run, facts }),
  );
}

function NoStore() {
  return p({ class: 'dim' }, 'This run keeps no episodes: it was made with store.keep=off, by an earlier version, or it has not begun.');
}

function Alarms({ alarms, error }) {
  if (!alarms.length && !error) return null;
  return ul(
    { class: 'alarms' },
    error && li({ dir: 'auto' }, error),
    alarms.map((alarm, i) => li({ key: i, dir: 'auto' }, alarm.step === undefined ? '' : span({ class: 'dim' }, `step ${alarm.step} · `), alarm.text)),
  );
}

function Curves({ name, data, version }) {
  const { series, validation, outcomes, tools, names } = data.curves;
  const line = (key, label) => ({ label: label ?? key, points: series[key] ?? [] });
  const staleness = ['staleness', 'max_staleness'].filter((key) => series[key]);
  const updates = UPDATES.filter(([, ...figures]) => series[figures[figures.length - 1][0]]);
  const own = ['reward', 'staleness', 'max_staleness', 'loss', 'kl', ...UPDATES.flatMap(([, ...figures]) => figures.map(([key]) => key))];
  const others = Object.keys(series).filter((key) => !own.includes(key));
  return div(
    h(Results, { data }),
    div(
      { class: 'charts' },
      series.reward && h(Chart, { title: 'Reward', lines: [line('reward')] }),
      validation.length > 0 &&
        h(Chart, {
          title: 'Validation accuracy, 95 % interval',
          lines: [{ label: 'accuracy', points: validation.map((each) => [each.step, each.accuracy]), band: validation.filter((each) => each.low !== null).map((each) => [each.step, each.low, each.high]) }],
          format: percent,
        }),
      Object.keys(outcomes).length > 0 && h(Chart, { title: 'Episodes by outcome', stacked: true, lines: Object.entries(outcomes).map(([label, points]) => ({ label, points })) }),
      series.loss && h(Chart, { title: title('loss'), lines: [line('loss')] }),
      series.kl && h(Chart, { title: title('kl'), lines: [line('kl')] }),
      staleness.length > 0 && h(Chart, { title: 'Staleness (steps)', lines: staleness.map((key) => line(key, key === 'staleness' ? 'mean' : 'greatest')) }),
      Object.keys(tools).length > 0 &&
        h(Chart, { title: 'Tool latency (mean seconds)', lines: Object.entries(tools).map(([label, points]) => ({ label, points: points.map((each) => [each.step, each.mean_seconds]) })), format: duration }),
      Object.keys(tools).length > 0 &&
        h(Chart, { title: 'Tool errors (share of calls)', lines: Object.entries(tools).map(([label, points]) => ({ label, points: points.map((each) => [each.step, each.errors / each.calls]) })), format: percent }),
      others.map((key) => h(Chart, { key, title: title(key), lines: [line(key)] })),
      updates.map(([name, ...figures]) => h(Chart, { key: name, title: name, lines: figures.map(([key, text]) => line(key, text)) })),
    ),
    names.length > 0 && isLive() && h(OtherFigure, { name, names, version }),
  );
}

function Result({ run, evaluation }) {
  const { settings, groups } = evaluation;
  return div(
    h(Tiles, {
      tiles: [
        ['measured', run.subject],
        ['accuracy', run.after && accuracy(run.after)],
        ['attempts', evaluation.attempts !== null && `${number(evaluation.attempts)} of ${number(evaluation.attempts_expected)}`],
        ['errors', run.after && number(run.after.errors)],
      ],
    }),
    run.has_report && isLive() && p(a({ href: `/api/report?${new URLSearchParams({ run: run.name })}` }, 'Report: every task with its attempts')),
    Object.entries(groups).map(([name, labels]) =>
      section(
        { key: name },
        h2(`By ${name}`),
        table(
          { class: 'list' },
          thead(tr(th(name), th({ class: 'figure' }, 'accuracy'), th('95 % interval'), th({ class: 'figure' }, 'tasks'), th({ class: 'figure' }, 'errors'))),
          tbody(
            Object.entries(labels).map(([label, group]) =>
              tr({ key: label }, td({ dir: 'auto' }, label), td({ class: 'figure' }, percent(group.accuracy)), td(h(Interval, { value: group.accuracy, interval: group.interval, label })), td({ class: 'figure' }, number(group.n)), td({ class: 'figure' }, number(group.errors))),
            ),
          ),
        ),
      ),
    ),
    h2('How it was measured'),
    h(Facts, {
      values: [
        ['dataset', settings.dataset.join(', ')],
        ['tasks', number(settings.tasks)],
        ['attempts a task', number(settings.attempts)],
        ['temperature', number(settings.temperature)],
        ['top_p', number(settings.top_p)],
        ['top_k', settings.top_k > 0 && number(settings.top_k)],
      ],
    }),
  );
}

function Tiles({ tiles }) {
  const known = tiles.filter(([, value]) => value);
  return known.length ? div({ class: 'tiles' }, known.map(([name, value]) => div({ key: name, class: 'tile' }, small(name), span({ dir: 'auto' }, value)))) : null;
}

function Results({ data }) {
  const { run } = data;
  const tiles = [
    ['accuracy before', run.before && accuracy(run.before)],
    ['accuracy after', run.after && accuracy(run.after)],
    ['reward, last step', run.reward !== null && number(run.reward)],
    ['episodes', data.facts.episodes !== undefined && data.facts.episodes !== null && number(data.facts.episodes)],
    ['tool calls', data.facts.tool_calls !== undefined && data.facts.tool_calls !== null && `${number(data.facts.tool_calls)} (${number(data.facts.tool_errors)} failed)`],
  ];
  return h(Tiles, { tiles });
}

function OtherFigure({ name, names, version }) {
  const [figure, setFigure] = useState('');
  const { data } = useData(figure ? 'series' : null, { run: name, name: figure }, version);
  return section(
    label(
      { class: 'other' },
      'Another figure of metrics.jsonl ',
      select({ value: figure, onChange: (event) => setFigure(event.target.value) }, option({ value: '' }, ''), names.map((each) => option({ key: each, value: each }, each))),
    ),
    data && div({ class: 'charts' }, h(Chart, { title: figure, lines: [{ label: figure, points: data.points }] })),
  );
}

function Tasks({ name, version, page }) {
  const { data, error } = usePages('tasks', { run: name, offset: 100 * page }, version);
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  return section(
    table(
      { class: 'list tasks-of-run' },
      thead(tr(['task', 'source', 'question', 'right answer', 'scorer'].map((each) => th(each)), ['episodes', 'mean reward', 'last step'].map((each) => th({ class: 'figure' }, each)))),
      tbody(
        data.tasks.map((task) =>
          tr(
            { key: task.id, 'data-row': true },
            td(h(Link, { to: { run: name, task: task.id } }, `#${task.index}`)),
            td({ dir: 'auto' }, task.source),
            td({ class: 'question', dir: 'auto' }, task.question),
            td({ class: 'answer', dir: 'auto' }, task.answer),
            td(task.scorer),
            td({ class: 'figure' }, number(task.episodes)),
            td({ class: 'figure' }, number(task.mean_reward)),
            td({ class: 'figure' }, number(task.last_step)),
          ),
        ),
      ),
    ),
    div(
      { class: 'pager' },
      page > 0 && h(Link, { to: { run: name, view: 'tasks', page: page - 1 || null } }, '← earlier'),
      data.tasks.length === 100 && h(Link, { to: { run: name, view: 'tasks', page: page + 1 } }, 'later →'),
    ),
  );
}

function About({ run, facts }) {
  const report = reportFacts();
  return section(
    h2('What it came to'),
    h(Facts, {
      values: [
        ['accuracy before', run.before && accuracy(run.before)],
        [facts.evaluation ? 'accuracy' : 'accuracy after', run.after && accuracy(run.after)],
        ['training episodes', facts.episodes && `${number(facts.episodes)}, ${number(facts.trained_episodes)} of them trained on`],
        ['outcomes', counts(facts.outcomes)],
        ['not scored', counts(facts.unscored)],
        ['suspicions', counts(facts.suspicions)],
        ['tool calls', facts.tool_calls && `${number(facts.tool_calls)}, ${number(facts.tool_errors)} of them failed`],
        ['environments lost', facts.environment_losses],
        ['restarts', facts.restarts?.length],
        ['remark', facts.remark],
        ['checkpoint', facts.checkpoint],
      ],
    }),
    h2('Where it came from'),
    h(Facts, {
      values: [
        [facts.evaluation ? 'measured' : 'model', run.subject],
        ['code', facts.code && `${facts.code.slice(0, 12)} on ${facts.branch}${facts.changed_files ? `, ${facts.changed_files} files changed` : ''}`],
        ['machine', [facts.host, ...(facts.gpus ?? [])].filter(Boolean).join(', ')],
        ['starts', facts.attempts],
        ['command', facts.command],
        ['began', run.started],
        ['folder', facts.folder],
        ['report', report && `${report.made}, aworld-train ${report.version}`],
      ],
    }),
    isLive() && p(a({ href: addressOf({ compare: [run.name] }) }, 'This address compares it with others')),
  );
}
