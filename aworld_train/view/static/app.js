// Chooses the page that the address names, and listens to keys.
import { h, render } from './vendor/preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { button, dd, dialog, div, dl, dt, h2, header, kbd, main, span } from './elements.js';
import { Link, useAddress } from './address.js';
import { isLive, reportFacts } from './data.js';
import { EpisodePage } from './episode.js';
import { RunPage } from './run.js';
import { Compare, RunList } from './runs.js';
import { TaskPage } from './task.js';

const KEYS = [
  ['j', 'next episode, or next line of a list'],
  ['k', 'previous episode, or previous line'],
  ['Enter', 'open the line'],
  ['/', 'search'],
  ['u', 'up: from an episode to its list, from a list to its run'],
  ['?', 'this help'],
  ['Esc', 'leave a field, close the help'],
];

function App() {
  const address = useAddress();
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const press = (event) => key(event, setHelp);
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, []);
  useEffect(() => {
    document.title = [address.get('episode') && 'episode', address.get('run'), 'aworld-train'].filter(Boolean).join(' · ');
  });
  return div(
    header({ class: 'top' }, h(Crumbs, { address }), button({ class: 'plain', title: 'Keys', 'aria-label': 'Keys', onClick: () => setHelp(true) }, '?')),
    main(h(page(address), { address, key: pageKey(address) })),
    help && h(Help, { close: () => setHelp(false) }),
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

function Help({ close }) {
  return dialog(
    { open: true, class: 'help', 'aria-label': 'Keys' },
    h2('Keys'),
    dl({ class: 'facts' }, KEYS.flatMap(([name, text]) => [dt({ key: `${name} key` }, kbd(name)), dd({ key: name }, text)])),
    button({ onClick: close }, 'Close'),
  );
}

function key(event, setHelp) {
  const field = event.target.closest?.('input, select, textarea');
  if (event.key === 'Escape') {
    field?.blur();
    setHelp(false);
    return;
  }
  if (field && field.type !== 'checkbox') return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '?') setHelp((shown) => !shown);
  else if (event.key === '/') document.querySelector('[data-search]')?.focus();
  else if (event.key === 'j' || event.key === 'k') step(event.key === 'j');
  else if (event.key === 'u') (document.querySelector('[data-list]') ?? [...document.querySelectorAll('.crumbs a')].at(-1))?.click();
  else if (event.key === 'Enter' && event.target === document.body) (document.querySelector('.current .question a') ?? document.querySelector('.current a'))?.click();
  else return;
  event.preventDefault();
}

function step(down) {
  const neighbour = document.querySelector(`[data-neighbour=${down ? 'next' : 'previous'}]`);
  if (neighbour) {
    neighbour.click();
    return;
  }
  const rows = [...document.querySelectorAll('[data-row]')];
  const at = rows.findIndex((row) => row.classList.contains('current'));
  const next = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + (down ? 1 : -1)))];
  rows[at]?.classList.remove('current');
  // Enter opens the line, and not what was clicked before.
  document.activeElement?.blur();
  next?.classList.add('current');
  next?.scrollIntoView({ block: 'nearest' });
}

export function start() {
  render(h(App), document.getElementById('page'));
}
