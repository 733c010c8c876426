// The page of a report: the same pages, from data that are in the file.
import { current, go } from './address.js';
import { start } from './app.js';
import { setSource } from './data.js';

const EQUAL = ['phase', 'outcome', 'treatment', 'status', 'scorer', 'task'];

function reportSource(data) {
  const heads = data.episodes.map((episode) => episode.head);
  const whole = new Map(data.episodes.map((episode) => [episode.head.id, episode]));
  const texts = new Map(data.episodes.map((episode) => [episode.head.id, searched(episode)]));
  const tools = (head) => (whole.get(head.id).content?.tool_calls ?? []).map((use) => use.name);
  const meets = (head, wanted) =>
    EQUAL.every((name) => !wanted[name] || head[name] === wanted[name]) &&
    (!wanted.step || head.step === Number(wanted.step)) &&
    (!wanted.reward_min || (head.reward !== null && head.reward >= Number(wanted.reward_min))) &&
    (!wanted.reward_max || (head.reward !== null && head.reward <= Number(wanted.reward_max))) &&
    (!wanted.tool || tools(head).includes(wanted.tool)) &&
    (!wanted.suspicion || head.suspicions.includes(wanted.suspicion)) &&
    (!wanted.search || texts.get(head.id).includes(wanted.search.toLowerCase()));
  const found = (wanted) => heads.filter((head) => meets(head, wanted)).sort(order(wanted));
  const queries = {
    run: () => data.run,
    episodes: (wanted) => ({ episodes: found(wanted).slice(wanted.offset, wanted.offset + wanted.limit), figures: data.figures }),
    count: (wanted) => ({ count: found(wanted).length }),
    values: () => values(heads, tools),
    episode: ({ episode }) => whole.get(episode),
    tokens: ({ episode }) => data.tokens[episode] ?? { agents: [], rows: [], texts: null },
    task: ({ task }) => ({ task, episodes: heads.filter((head) => head.task === task), figures: data.figures }),
  };
  return {
    live: false,
    report: data.report,
    image: (_, digest) => data.images[digest] ?? null,
    async get(name, wanted) {
      const answer = queries[name]?.(wanted);
      if (!answer) throw new Error('This is not in the report.');
      return answer;
    },
  };
}

function searched({ head, content }) {
  const messages = (content?.agents ?? []).flatMap((agent) => agent.nodes.flatMap((node) => node.messages));
  const uses = content?.tool_calls ?? [];
  const texts = [head.question, content?.answer, ...messages.flatMap((message) => [message.reasoning, message.content]), ...uses.flatMap((use) => [use.name, use.arguments, use.result])];
  return texts.filter(Boolean).join('\n').toLowerCase();
}

function order({ sort = 'began', order: direction = 'down' }) {
  const sign = direction === 'up' ? 1 : -1;
  return (one, other) => {
    const [a, b] = [one[sort], other[sort]];
    if (a === null || b === null) return (a === null) - (b === null);
    return a < b ? -sign : a > b ? sign : one.id < other.id ? -1 : 1;
  };
}

function values(heads, tools) {
  const counted = (of) => {
    const counts = {};
    for (const value of heads.flatMap(of)) if (value !== null && value !== undefined) counts[value] = (counts[value] ?? 0) + 1;
    return counts;
  };
  const found = { tool: counted((head) => [...new Set(tools(head))]), suspicion: counted((head) => head.suspicions) };
  for (const name of EQUAL) found[name] = counted((head) => [head[name]]);
  found.steps = Object.keys(counted((head) => [head.step])).map((step) => ['', Number(step), 0]);
  return found;
}

const data = JSON.parse(document.getElementById('report').textContent);
setSource(reportSource(data));
if (!current().get('run')) go({ run: data.run.run.name }, { replace: true });
start();
