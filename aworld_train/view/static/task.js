// The attempts at one task: across the steps of a run, and in other runs, two or three of them side by side.
import { h } from './vendor/preact.js';
import { button, div, h1, h2, p, section, span, table, tbody, td, th, tr } from './elements.js';
import { Link, changed, go } from './address.js';
import { useData, useVersion } from './data.js';
import { Conversations } from './episode.js';
import { number } from './format.js';
import { rewardClass } from './episodes.js';
import { Badge, Failure, Text, Waiting } from './parts.js';

const MOST = 3;

export function TaskPage({ address }) {
  const runs = [address.get('run'), ...address.getAll('with')];
  const task = address.get('task');
  const shown = address.getAll('show');
  const choose = (key) => go(changed({ show: shown.includes(key) ? shown.filter((each) => each !== key) : [...shown, key].slice(-MOST) }), { replace: true });
  return div(
    h(Title, { run: runs[0], task }),
    div({ class: 'attempts-of' }, runs.map((run) => h(Attempts, { key: run, run, task, shown, choose }))),
    shown.length ? div({ class: `beside of-${shown.length}` }, shown.map((key) => h(Attempt, { key, name: key, several: runs.length > 1 }))) : p({ class: 'dim' }, 'Choose up to three attempts to read them side by side.'),
  );
}

function Title({ run, task }) {
  const { data } = useData('task', { run, task });
  const head = data?.episodes[0];
  return div(
    div({ class: 'head' }, h1(head ? `Task #${head.index}` : 'Task'), head && span({ class: 'dim', dir: 'auto' }, head.source), head && span({ class: 'dim' }, 'right answer '), head && span({ dir: 'auto' }, head.correct_answer)),
    head && h(Text, { class: 'quoted' }, head.question),
  );
}

function Attempts({ run, task, shown, choose }) {
  const version = useVersion([run]);
  const { data, error } = useData('task', { run, task }, version);
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const steps = new Map();
  for (const episode of data.episodes) {
    const key = `${episode.step} ${episode.phase}`;
    steps.set(key, [...(steps.get(key) ?? []), episode]);
  }
  return section(
    h2(h(Link, { to: { run } }, run)),
    !data.episodes.length && p({ class: 'dim' }, 'No attempt at this task.'),
    table(
      { class: 'attempts' },
      tbody(
        [...steps].map(([key, episodes]) =>
          tr({ key }, th(`step ${episodes[0].step}`, span({ class: 'dim' }, ` ${episodes[0].phase}`)), td([...episodes].sort((one, other) => one.attempt - other.attempt).map((episode) => h(Chip, { key: episode.id, run, episode, shown, choose })))),
        ),
      ),
    ),
  );
}

function Chip({ run, episode, shown, choose }) {
  const key = `${episode.id} ${run}`;
  return button(
    { class: `chip ${rewardClass(episode.reward)} ${shown.includes(key) ? 'chosen' : ''}`, 'data-attempt': episode.id, 'aria-pressed': String(shown.includes(key)), title: `${episode.outcome ?? episode.status}, attempt ${episode.attempt}`, onClick: () => choose(key) },
    episode.reward === null ? episode.outcome ?? episode.status : number(episode.reward),
  );
}

function Attempt({ name, several }) {
  const [id, run] = [name.slice(0, name.indexOf(' ')), name.slice(name.indexOf(' ') + 1)];
  const { data, error } = useData('episode', { run, episode: id });
  if (error) return h(Failure, { message: error });
  if (!data) return h(Waiting);
  const { head } = data;
  return div(
    { class: 'attempt' },
    div({ class: 'who' }, several && span({ class: 'role' }, run), h(Link, { to: { run, episode: id } }, `step ${head.step} · attempt ${head.attempt}`), h(Badge, { kind: head.outcome ?? head.status }), span({ class: rewardClass(head.reward) }, number(head.reward))),
    data.content ? h(Conversations, { run, content: data.content }) : p({ class: 'dim' }, 'What was said in this episode is not kept.'),
  );
}
