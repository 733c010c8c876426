// Which tasks are shown, and in which order: what the address says, so that a list can be shared and returned to.

export const GROUPINGS = ['level', 'source', 'scorer', 'tag'];
const NAMES = ['search', 'result', 'sort', 'order', ...GROUPINGS];
export const NONE = '(none)';
export const RESULTS = [
  ['', 'all'],
  ['right', 'all right'],
  ['mixed', 'some right'],
  ['wrong', 'none right'],
  ['error', 'with an error'],
  ['suspicious', 'suspicious'],
];

export function filterOf(address) {
  return Object.fromEntries(NAMES.map((name) => [name, address.get(name)]).filter(([, value]) => value));
}

export function labels(task, grouping) {
  const found = grouping === 'tag' ? task.tags : [task[grouping]];
  return found.length && found[0] !== '' ? found : [NONE];
}

export function meanScore(task) {
  const scores = task.attempts.map((attempt) => attempt.score).filter((score) => score !== null);
  return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
}

export function resultOf(score) {
  if (score === null) return 'error';
  return score >= 1 ? 'right' : score <= 0 ? 'wrong' : 'partly';
}

export function found(tasks, filter) {
  const words = (filter.search ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const groupings = GROUPINGS.filter((name) => filter[name]);
  const meets = (task) =>
    groupings.every((name) => labels(task, name).includes(filter[name])) && hasResult(task, filter.result) && words.every((word) => textOf(task).includes(word));
  return tasks.filter(meets).sort(byOrder(filter));
}

function hasResult(task, result) {
  if (!result) return true;
  if (result === 'error') return task.attempts.some((attempt) => attempt.score === null);
  if (result === 'suspicious') return task.attempts.some((attempt) => attempt.suspicions.length);
  const mean = meanScore(task);
  if (mean === null) return false;
  return result === 'right' ? mean >= 1 : result === 'wrong' ? mean <= 0 : mean > 0 && mean < 1;
}

const texts = new WeakMap();

function textOf(task) {
  if (!texts.has(task)) {
    const parts = [`#${task.index}`, task.name, task.question, task.answer, ...task.tags, ...task.attempts.flatMap((attempt) => [attempt.answer, attempt.outcome, attempt.cause])];
    texts.set(task, parts.filter(Boolean).join('\n').toLowerCase());
  }
  return texts.get(task);
}

const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

export const SORTS = {
  index: (task) => task.index,
  level: (task) => task.level,
  score: meanScore,
  turns: (task) => mean(task.attempts.map((attempt) => attempt.turns)),
  tools: (task) => mean(task.attempts.map((attempt) => attempt.tool_calls)),
  tokens: (task) => mean(task.attempts.map((attempt) => attempt.tokens)),
  seconds: (task) => mean(task.attempts.map((attempt) => attempt.seconds)),
};

function byOrder({ sort, order }) {
  const value = SORTS[sort];
  const sign = order === 'down' ? -1 : 1;
  return (one, other) => {
    const [a, b] = value ? [value(one), value(other)] : [0, 0];
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === 'string') return sign * a.localeCompare(b, 'en', { numeric: true }) || one.index - other.index;
    return sign * (a - b) || (value ? one.index - other.index : 0);
  };
}
