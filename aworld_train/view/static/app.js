// Chooses the page that the address names.
import { h, render } from './vendor/preact.js';
import { useEffect } from './vendor/hooks.js';
import { button, div, header, main, span } from './elements.js';
import { Link, useAddress } from './address.js';
import { isLive, reportFacts } from './data.js';
import { EpisodePage } from './episode.js';
import { Help, KEYS, useKeys } from './keys.js';
import { RunPage } from './run.js';
import { Compare, RunList } from './runs.js';
import { TaskPage } from './task.js';

function App() {
  const address = useAddress();
  const [help, setHelp] = useKeys();
  useEffect(() => {
    document.title = [address.get('episode') && 'episode', address.get('run'), 'aworld-train'].filter(Boolean).join(' · ');
  });
  return div(
    header({ class: 'top' }, h(Crumbs, { address }), button({ class: 'plain', title: 'Keys', 'aria-label': 'Keys', onClick: () => setHelp(true) }, '?')),
    main(h(page(address), { address, key: pageKey(address) })),
    help && h(Help, { keys: KEYS, close: () => setHelp(false) }),
  );
}

function page(address) {
  if (address.has('compare')) return Compare;
  if (!address.get('run')) return RunList;
  if (address.get('task') && !address.get('episode') && address.get('view') !== 'episodes') return TaskPage;
  return address.get('episode') ? EpisodePage : RunPage;
}

function pageKey(address) {
  return [...address.getAll('compare'), address.get('run'), address.get('episode')].join('\n');
}

function Crumbs({ address }) {
  const run = address.get('run');
  const report = reportFacts();
  return span(
    { class: 'crumbs' },
    isLive() ? h(Link, { to: {} }, 'runs') : span({ class: 'dim' }, report ? `report of ${report.made}, with ${report.episodes} of ${report.of} episodes` : ''),
    run && span(' / ', h(Link, { to: { run }, dir: 'auto' }, run)),
    address.get('episode') && span(' / ', span({ class: 'dim' }, address.get('episode'))),
    address.get('task') && !address.get('episode') && span(' / ', span({ class: 'dim' }, 'task')),
  );
}

export function start() {
  render(h(App), document.getElementById('page'));
}
