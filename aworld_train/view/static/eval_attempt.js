// One task of an evaluation: its question, and one of its attempts with its conversation, tools and score.
import { h } from './vendor/preact.js';
import { useEffect } from './vendor/hooks.js';
import { details, div, h1, p, span, summary } from './elements.js';
import { Link, go } from './address.js';
import { useData } from './data.js';
import { Conversations, Figures, Score, ToolUses } from './episode.js';
import { filterOf, found, labels, resultOf } from './eval_filter.js';
import { Marks } from './eval_tasks.js';
import { Badge, Failure, Text, Waiting } from './parts.js';

export function AttemptPage({ data, task, address }) {
  const filter = filterOf(address);
  const wished = Number(address.get('attempt') ?? 0) || 0;
  const attempt = task.attempts.find((each) => each.number === wished) ?? task.attempts[0];
  useEffect(() => {
    const press = (event) => {
      if (event.target.closest?.('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
      const chosen = /^[1-9]$/.test(event.key) && task.attempts.find((each) => each.number === Number(event.key) - 1);
      if (chosen) go({ task: task.id, attempt: chosen.number || null, ...filter }, { replace: true });
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  });
  return div(
    h(Head, { data, task, filter, chosen: attempt?.number ?? null }),
    h(Question, { task, open: !attempt?.readable }),
    attempt ? h(Attempt, { key: attempt.episode, task, attempt }) : p({ class: 'dim' }, 'No attempt at this task has ended.'),
  );
}

function Head({ data, task, filter, chosen }) {
  const tasks = found(data.tasks, filter);
  const at = tasks.findIndex((each) => each.id === task.id);
  const link = (place, name, text) => {
    const target = at < 0 ? null : tasks[place];
    return target ? h(Link, { to: { task: target.id, ...filter }, 'data-neighbour': name, title: name === 'next' ? 'j' : 'k', replace: true }, text) : span({ class: 'dim' }, text);
  };
  const { groups } = data.figures;
  return div(
    { class: 'head' },
    h1(`Task #${task.index}`, task.name && span({ class: 'dim', dir: 'auto' }, ` · ${task.name}`)),
    ['level', 'source', 'tag'].filter((name) => groups[name]).flatMap((name) => labels(task, name).map((each) => span({ key: `${name} ${each}`, class: 'badge', dir: 'auto' }, name === 'level' ? `level ${each}` : each))),
    span({ class: 'marks large-marks' }, h(Marks, { task, filter, chosen })),
    span({ class: 'neighbours' }, link(at - 1, 'previous', '↑ previous'), link(at + 1, 'next', 'next ↓'), h(Link, { to: filter, 'data-list': true }, 'all tasks')),
  );
}

function Question({ task, open }) {
  return details({ class: 'question-of-task', open }, summary('Question ', span({ class: 'beginning', dir: 'auto' }, task.question.slice(0, 200))), h(Text, { class: 'quoted' }, task.question));
}

function Attempt({ task, attempt }) {
  const result = resultOf(attempt.score);
  const { data, error } = useData(attempt.readable ? 'episode' : null, { episode: attempt.episode });
  return div(
    div(
      { class: 'verdict' },
      span({ class: `badge ${{ right: 'good', wrong: 'bad', error: 'warn', partly: '' }[result]}` }, result === 'error' ? 'no score' : result),
      span({ class: 'dim' }, `attempt ${attempt.number + 1}`),
      attempt.outcome !== 'answered' && h(Badge, { kind: attempt.outcome }),
      attempt.cause && span({ class: 'bad-text', dir: 'auto' }, attempt.cause),
      attempt.answer !== null && span(span({ class: 'dim' }, 'answer '), span({ class: `answered ${result}`, dir: 'auto' }, attempt.answer)),
      task.answer && span(span({ class: 'dim' }, 'right answer '), span({ class: 'answered', dir: 'auto' }, task.answer)),
    ),
    !attempt.readable && p({ class: 'dim' }, 'The conversation of this attempt is not in this file.'),
    h(Failure, { message: error }),
    attempt.readable && !data && !error && h(Waiting),
    data && div({ class: 'episode' }, div({ class: 'column' }, h(Conversations, { address: null, run: '', content: data.content })), div({ class: 'side' }, h(Score, { data }), h(Figures, { data }), h(ToolUses, { data }))),
  );
}
