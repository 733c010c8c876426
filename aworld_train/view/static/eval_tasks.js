// The tasks of an evaluation with a mark for each attempt. Rows are made as the reader comes to them, so that
// thousands of tasks open and filter at once.
import { h } from './vendor/preact.js';
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { button, div, h2, input, label, option, section, select, span, table, tbody, td, th, thead, tr } from './elements.js';
import { Link, changed, go } from './address.js';
import { number } from './format.js';
import { GROUPINGS, NONE, RESULTS, SORTS, found, labels, meanScore, resultOf } from './eval_filter.js';

const AT_ONCE = 80;
const MARKS = { right: '✓', wrong: '✗', error: '!', partly: '◐' };

export function TaskList({ data, filter }) {
  const tasks = found(data.tasks, filter);
  const key = JSON.stringify(filter);
  return section(
    { class: 'task-list' },
    div({ class: 'bar-head' }, h2('Tasks'), span({ class: 'dim', 'data-count': tasks.length }, tasks.length === data.tasks.length ? number(tasks.length) : `${number(tasks.length)} of ${number(data.tasks.length)}`)),
    h(Filters, { data, filter }),
    h(Rows, { key, data, tasks, filter }),
  );
}

function change(changes) {
  go(changed(changes), { replace: true });
}

function Filters({ data, filter }) {
  const groupings = GROUPINGS.filter((name) => data.figures.groups[name]);
  const any = Object.keys(filter).some((name) => !['sort', 'order'].includes(name));
  return div(
    { class: 'filters' },
    label({ class: 'typed' }, 'question, answer, cause', input({ type: 'search', 'data-search': true, 'data-filter': 'search', value: filter.search ?? '', placeholder: 'search  /', onInput: (event) => change({ search: event.target.value }) })),
    h(Choice, { name: 'result', value: filter.result, options: RESULTS }),
    groupings.map((name) => h(Choice, { key: name, name, value: filter[name], options: [['', 'all'], ...Object.keys(data.figures.groups[name]).map((each) => [each || NONE, each || NONE])] })),
    any && button({ class: 'plain', onClick: () => change({ search: null, result: null, ...Object.fromEntries(GROUPINGS.map((name) => [name, null])) }) }, 'clear'),
  );
}

function Choice({ name, value, options }) {
  return label(name, select({ 'data-filter': name, value: value ?? '', onChange: (event) => change({ [name]: event.target.value }) }, options.map(([each, text]) => option({ key: each, value: each, selected: each === (value ?? '') }, text))));
}

function Rows({ data, tasks, filter }) {
  const [shown, setShown] = useState(AT_ONCE);
  const end = useRef(null);
  useEffect(() => {
    if (!end.current) return undefined;
    const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setShown((count) => count + AT_ONCE), { rootMargin: '800px' });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [shown >= tasks.length, shown]);
  if (!tasks.length) return div({ class: 'waiting', 'data-empty': true }, 'No tasks match.');
  const groups = data.figures.groups;
  const most = data.figures.attempts_per_task;
  return div(
    table(
      { class: 'list tasks' },
      thead(
        tr(
          h(Heading, { name: 'index', text: '#', filter }),
          groups.level && h(Heading, { name: 'level', filter, left: true }),
          groups.source && th({ class: 'source' }, 'source'),
          th('question'),
          th('right answer'),
          th(most > 1 ? 'attempts' : 'result'),
          most > 1 && h(Heading, { name: 'score', filter }),
          h(Heading, { name: 'turns', filter }),
          h(Heading, { name: 'tools', filter }),
          h(Heading, { name: 'tokens', filter }),
          h(Heading, { name: 'seconds', filter }),
        ),
      ),
      tbody(tasks.slice(0, shown).map((task) => h(Row, { key: task.id, task, groups, most, filter }))),
    ),
    shown < tasks.length && div({ ref: end, class: 'waiting' }, `${number(tasks.length - shown)} more`),
  );
}

function Heading({ name, text = name, filter, left = false }) {
  const sorted = filter.sort === name;
  const down = sorted && filter.order === 'down';
  const next = !sorted ? { sort: name, order: null } : down ? { sort: null, order: null } : { sort: name, order: 'down' };
  return th({ class: left ? '' : 'figure', 'aria-sort': sorted ? (down ? 'descending' : 'ascending') : undefined }, button({ class: 'sort', onClick: () => change(next) }, text, sorted ? (down ? ' ↓' : ' ↑') : ''));
}

function Row({ task, groups, most, filter }) {
  const to = { task: task.id, ...filter };
  const open = (event) => {
    if (event.target.closest('a, button') || getSelection().toString()) return;
    go(to);
    window.scrollTo(0, 0);
  };
  return tr(
    { class: 'open', 'data-row': true, 'data-task': task.id, onClick: open },
    td({ class: 'figure dim' }, String(task.index)),
    groups.level && td({ dir: 'auto' }, labels(task, 'level')[0]),
    groups.source && td({ class: 'source', dir: 'auto' }, task.source),
    td({ class: 'question', dir: 'auto' }, h(Link, { to, title: task.question }, task.question || task.id)),
    td({ class: 'answer', dir: 'auto' }, task.answer),
    td({ class: most > 8 ? 'marks many' : 'marks' }, h(Marks, { task, filter })),
    most > 1 && td({ class: 'figure' }, fixed(meanScore(task), 2)),
    td({ class: 'figure' }, fixed(SORTS.turns(task))),
    td({ class: 'figure' }, fixed(SORTS.tools(task))),
    td({ class: 'figure' }, fixed(SORTS.tokens(task), 0)),
    td({ class: 'figure' }, fixed(SORTS.seconds(task))),
  );
}

function fixed(value, digits = 1) {
  // As many digits in every row, so that figures stand below each other.
  return value === null ? '–' : value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function Marks({ task, filter, chosen = null }) {
  return task.attempts.map((attempt) => {
    const result = resultOf(attempt.score);
    const description = result === 'error' ? attempt.cause ?? attempt.outcome : [result, attempt.outcome !== 'answered' && attempt.outcome, attempt.answer !== null && `answer ${attempt.answer}`].filter(Boolean).join(', ');
    return h(
      Link,
      {
        key: attempt.episode,
        to: { task: task.id, attempt: attempt.number || null, ...filter },
        replace: chosen !== null,
        class: `mark ${result}${attempt.number === chosen ? ' chosen' : ''}${attempt.suspicions.length ? ' suspicious' : ''}`,
        title: `attempt ${attempt.number + 1}: ${description}${attempt.suspicions.length ? `; suspicious: ${attempt.suspicions.join(', ')}` : ''}`,
        'aria-label': `attempt ${attempt.number + 1}: ${description}`,
        'aria-current': attempt.number === chosen ? 'true' : undefined,
        'data-result': result,
      },
      MARKS[result],
    );
  });
}
