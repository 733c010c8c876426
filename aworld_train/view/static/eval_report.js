// The page of an evaluation's report: its figures, its tasks, and each attempt, from data that are in the file.
import { h, render } from './vendor/preact.js';
import { useEffect } from './vendor/hooks.js';
import { button, div, header, main, span } from './elements.js';
import { Link, useAddress } from './address.js';
import { setSource } from './data.js';
import { AttemptPage } from './eval_attempt.js';
import { filterOf } from './eval_filter.js';
import { Overview } from './eval_overview.js';
import { Help, useKeys } from './keys.js';

const KEYS = [
  ['j', 'next task, or next line of the list'],
  ['k', 'previous task, or previous line'],
  ['Enter', 'open the line'],
  ['1 … 9', 'the attempts at a task'],
  ['/', 'search'],
  ['u', 'up: from a task to the list'],
  ['?', 'this help'],
  ['Esc', 'leave a field, close the help'],
];

function reportSource(data) {
  const taskOf = new Map(data.tasks.flatMap((task) => task.attempts.map((attempt) => [attempt.episode, task.id])));
  const unpackedTasks = new Map();
  return {
    live: false,
    report: data.report,
    image: (_, digest) => data.images[digest] ?? null,
    async get(name, { episode }) {
      const task = taskOf.get(episode);
      if (name !== 'episode' || !data.packed[task]) throw new Error('This is not in the report.');
      if (!unpackedTasks.has(task)) unpackedTasks.set(task, unpacked(data.packed[task]));
      return (await unpackedTasks.get(task))[episode];
    },
  };
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

function App({ data }) {
  const address = useAddress();
  const [help, setHelp] = useKeys();
  const task = data.tasks.find((each) => each.id === address.get('task'));
  useEffect(() => {
    document.title = [task && `#${task.index}`, data.evaluation.name, 'aworld-train'].filter(Boolean).join(' · ');
  });
  return div(
    header(
      { class: 'top' },
      span(
        { class: 'crumbs' },
        span({ class: 'dim' }, 'evaluation / '),
        h(Link, { to: filterOf(address), dir: 'auto' }, data.evaluation.name),
        task && span({ class: 'dim' }, ` / task #${task.index}`),
      ),
      span({ class: 'dim made' }, `${data.report.made} · aworld-train ${data.report.version}`),
      button({ class: 'plain', title: 'Keys', 'aria-label': 'Keys', onClick: () => setHelp(true) }, '?'),
    ),
    main(task ? h(AttemptPage, { key: task.id, data, task, address }) : h(Overview, { data, address })),
    help && h(Help, { keys: KEYS, close: () => setHelp(false) }),
  );
}

const data = JSON.parse(document.getElementById('report').textContent);
setSource(reportSource(data));
render(h(App, { data }), document.getElementById('page'));
