// The first page of an evaluation's report: the result and how sure it is, where it fails, and the list of tasks.
import { h } from './vendor/preact.js';
import { button, details, div, h1, h2, h3, p, section, small, span, summary, table, tbody, td, th, thead, tr } from './elements.js';
import { changed, go } from './address.js';
import { duration, number, percent, plural } from './format.js';
import { GROUPINGS, NONE, filterOf, resultOf } from './eval_filter.js';
import { CalibrationPlot, Curves, Histogram, Interval, Shares } from './eval_plots.js';
import { TaskList } from './eval_tasks.js';
import { Facts } from './parts.js';

export function Overview({ data, address }) {
  const { figures } = data;
  const filter = filterOf(address);
  return div(
    h(Title, { data }),
    h(Notes, { data }),
    div({ class: 'hero' }, h(Result, { figures }), h(Tiles, { figures })),
    div({ class: 'panels' }, h(Groups, { figures, filter }), h(Attempts, { data })),
    h(Charts, { data }),
    h(TaskList, { data, filter }),
    h(More, { data }),
  );
}

function Title({ data: { evaluation, figures } }) {
  const { settings } = evaluation;
  const sampling = settings.temperature === 0 ? 'greedy' : [`temperature ${number(settings.temperature)}`, settings.top_p < 1 && `top_p ${number(settings.top_p)}`, settings.top_k > 0 && `top_k ${settings.top_k}`].filter(Boolean).join(', ');
  return div(
    { class: 'head title' },
    h1({ dir: 'auto' }, figures.model || evaluation.name),
    span({ class: 'dim', dir: 'auto' }, `on ${figures.dataset}`),
    settings.agent && settings.agent !== 'recipe' && span({ class: 'badge warn' }, `agent ${settings.agent}`),
    span({ class: 'badge' }, sampling),
    span({ class: 'badge' }, `${plural(figures.attempts_per_task, 'attempt')} a task`),
    figures.attempts < figures.attempts_expected ? span({ class: 'badge warn' }, `unfinished: ${number(figures.attempts)} of ${number(figures.attempts_expected)} attempts`) : span({ class: 'badge good' }, 'complete'),
  );
}

function Notes({ data: { report } }) {
  if (report.episodes >= report.of) return null;
  return p({ class: 'dim remark' }, report.episodes ? `This file holds the conversations of ${number(report.episodes)} of ${number(report.of)} attempts; the run's folder has all that are kept.` : 'No conversations are kept of this evaluation.');
}

function Result({ figures }) {
  const { accuracy, interval, n } = figures;
  if (accuracy === null) return section({ class: 'card result' }, h2('Accuracy'), p({ class: 'large' }, '–'), p({ class: 'dim' }, 'No attempt could be scored.'));
  return section(
    { class: 'card result' },
    h2(figures.attempts_per_task > 1 ? `Accuracy, avg@${figures.attempts_per_task}` : 'Accuracy'),
    div({ class: 'large' }, percent(accuracy), span({ class: 'margin' }, `${percent(interval[0])} to ${percent(interval[1])}`)),
    h(Interval, { value: accuracy, interval, label: 'Accuracy' }),
    div({ class: 'scale dim' }, [0, 25, 50, 75, 100].map((each) => span({ key: each, style: { left: `${each}%` } }, String(each)))),
    p({ class: 'dim' }, `95 % interval over ${plural(n, 'task')}`),
    h(SeveralAttempts, { figures }),
  );
}

function SeveralAttempts({ figures }) {
  const k = figures.attempts_per_task;
  const shares = [['pass@', figures.pass_at, 'one of them is right'], ['maj@', figures.majority, 'the most frequent answer is right'], ['pass^', figures.pass_all, 'all of them are right']].filter(([, values]) => k > 1 && values[k] !== undefined);
  return div({ class: 'several' }, shares.map(([name, values, meaning]) => span({ key: name, title: `Of ${k} attempts, ${meaning}` }, span({ class: 'dim' }, `${name}${k} `), percent(values[k]))));
}

function Tiles({ figures }) {
  const { tokens, cost, latency, turns } = figures;
  const tiles = [
    ['tasks', number(figures.n), figures.n < figures.tasks ? `of ${number(figures.tasks)}` : 'all scored'],
    ['attempts', number(figures.attempts), figures.attempts < figures.attempts_expected ? `of ${number(figures.attempts_expected)}` : 'all made'],
    ['errors', number(figures.errors), figures.errors ? `${percent(figures.errors / figures.attempts)}, in no average` : 'every attempt has a score', figures.errors > 0 ? 'bad-text' : ''],
    ['tool calls', number(figures.tool_calls), plural(figures.tool_errors, 'error')],
    ['turns', turns ? number(turns.mean, 1) : '–', turns ? `at most ${turns.max}` : ''],
    ['time of an attempt', latency ? duration(latency.median) : '–', latency ? `p90 ${duration(latency.p90)}` : ''],
    ['tokens sampled', compact(tokens.sampled.total), `${compact(tokens.sampled.mean)} an attempt`],
    ['prompt tokens', compact(tokens.prompt.total), `${compact(tokens.prompt.mean)} an attempt`],
    cost ? ['cost', money(cost.total), `${money(cost.per_task)} a task`] : ['duration', duration(figures.seconds), 'of the evaluation'],
  ];
  return div(
    { class: 'tiles figures' },
    tiles.map(([name, value, note, kind]) => div({ key: name, class: 'tile' }, small(name), span({ class: kind ?? '' }, value), small(note))),
  );
}

function compact(value) {
  return value.toLocaleString('en', { notation: 'compact', maximumSignificantDigits: 3 });
}

function money(value) {
  return value.toLocaleString('en', value < 1 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

function Groups({ figures, filter }) {
  const names = GROUPINGS.filter((name) => figures.groups[name]);
  if (!names.length) return null;
  return section(
    { class: 'card groups' },
    h2('Where it fails'),
    div(
      { class: 'group-rows' },
      names.map((name) => [
        h3({ key: name }, `by ${name}`),
        Object.entries(figures.groups[name]).map(([label, group]) => h(Group, { key: `${name} ${label}`, grouping: name, label: label || NONE, group, isChosen: filter[name] === (label || NONE) })),
      ]),
    ),
  );
}

function Group({ grouping, label, group, isChosen }) {
  return button(
    { class: isChosen ? 'group chosen' : 'group', 'aria-pressed': String(isChosen), title: 'Show these tasks', onClick: () => go(changed({ [grouping]: isChosen ? null : label }), { replace: true }) },
    span({ class: 'label', dir: 'auto', title: label }, label),
    h(Interval, { value: group.accuracy, interval: group.interval, label }),
    span({ class: 'value' }, percent(group.accuracy)),
    span({ class: 'dim between' }, group.interval ? `${Math.round(100 * group.interval[0])}–${Math.round(100 * group.interval[1])}` : ''),
    span({ class: 'dim count' }, `n ${number(group.n)}`),
    span({ class: 'count' }, group.errors ? span({ class: 'bad-text' }, plural(group.errors, 'error')) : ''),
  );
}

function Attempts({ data: { tasks, figures } }) {
  const results = { right: 0, partly: 0, wrong: 0, error: 0 };
  for (const task of tasks) for (const attempt of task.attempts) results[resultOf(attempt.score)] += 1;
  const missing = Math.max(0, figures.attempts_expected - figures.attempts);
  const solved = { always: 0, sometimes: 0, never: 0 };
  for (const task of tasks) {
    const scores = task.attempts.map((attempt) => attempt.score).filter((score) => score !== null);
    if (!scores.length) continue;
    solved[scores.every((score) => score >= 1) ? 'always' : scores.some((score) => score >= 1) ? 'sometimes' : 'never'] += 1;
  }
  const parts = [['right', results.right, 'right'], ['partly right', results.partly, 'partly'], ['wrong', results.wrong, 'wrong'], ['errors', results.error, 'error'], ['not made yet', missing, 'missing']];
  const ofTasks = [['always right', solved.always, 'right'], ['sometimes', solved.sometimes, 'partly'], ['never right', solved.never, 'wrong']];
  return section(
    { class: 'card' },
    h2('Attempts'),
    h(Shares, { parts, total: figures.attempts_expected }),
    h(Legend, { parts }),
    figures.attempts_per_task > 1 && h3({ class: 'second' }, 'Tasks'),
    figures.attempts_per_task > 1 && h(Shares, { parts: ofTasks, total: ofTasks.reduce((sum, [, count]) => sum + count, 0) || 1 }),
    figures.attempts_per_task > 1 && h(Legend, { parts: ofTasks }),
    h(Facts, {
      values: [
        ['outcomes', tally(figures.outcomes)],
        ['right answers with a tool', figures.correct_with_tool !== null && percent(figures.correct_with_tool)],
        ['time', figures.latency && `${percent(figures.latency.model_share)} model, ${percent(figures.latency.tool_share)} tools`],
        ['requests sent again', tally(figures.faults)],
        ['suspicious', tally(figures.suspicions)],
      ],
    }),
  );
}

function tally(values) {
  return Object.entries(values).map(([name, count]) => `${number(count)} × ${name}`).join(', ');
}

function Legend({ parts }) {
  return div({ class: 'legend-row' }, parts.filter(([, count]) => count).map(([name, count, kind]) => span({ key: name, class: 'entry' }, span({ class: `swatch share ${kind}` }), `${name} ${number(count)}`)));
}

function Charts({ data: { tasks, figures } }) {
  const attempts = tasks.flatMap((task) => task.attempts);
  const scored = attempts.filter((attempt) => attempt.score !== null);
  const series = [
    { label: 'pass@k', line: 2, values: figures.pass_at },
    { label: 'maj@k', line: 0, values: figures.majority },
    { label: 'pass^k', line: 1, values: figures.pass_all },
  ].filter(({ values }) => Object.keys(values).length);
  return div(
    { class: 'charts drawings' },
    Object.keys(figures.pass_at).length > 1 && h(Curves, { title: 'With more attempts, %', series }),
    h(Histogram, { title: 'Seconds of an attempt', values: scored.map((attempt) => attempt.seconds), format: (value) => number(value, 1), line: 0 }),
    h(Histogram, { title: 'Tokens sampled in an attempt', values: scored.map((attempt) => attempt.tokens), format: (value) => compact(Math.round(value)), line: 4 }),
    figures.calibration && h(CalibrationPlot, { title: `Calibration: RMS error ${percent(figures.calibration.rms_error)}, Brier ${number(figures.calibration.brier, 2)}`, bins: figures.calibration.bins }),
  );
}

function More({ data: { evaluation, figures } }) {
  const tables = [
    ['Errors by cause', figures.causes],
    ['Answers that could not be scored', figures.unscored],
  ].filter(([, values]) => Object.keys(values).length);
  const settings = Object.entries(evaluation.settings).map(([name, value]) => [name, value !== null && typeof value === 'object' ? JSON.stringify(value) : value === null ? null : String(value)]);
  return div(
    { class: 'more' },
    tables.map(([title, values]) => section({ key: title, class: 'card' }, h2(title), h(CountTable, { values }))),
    Object.keys(figures.parts).length > 0 && section({ class: 'card' }, h2('Parts of the score'), h(Facts, { values: Object.entries(figures.parts).map(([name, value]) => [name, number(value)]) })),
    section({ class: 'card' }, details(summary('Settings'), h(Facts, { values: [['began', evaluation.started], ['duration', duration(figures.seconds)], ...settings] }))),
  );
}

function CountTable({ values }) {
  return table({ class: 'list' }, thead(tr(th('cause'), th({ class: 'figure' }, 'attempts'))), tbody(Object.entries(values).map(([name, count]) => tr({ key: name }, td({ class: 'cause', dir: 'auto' }, name), td({ class: 'figure' }, number(count))))));
}
