// Keys: lists and episodes are walked through, opened and left by them, on every page in the same way.
import { useEffect, useState } from './vendor/hooks.js';
import { button, dd, dialog, dl, dt, h2, kbd } from './elements.js';

export const KEYS = [
  ['j', 'next episode, or next line of a list'],
  ['k', 'previous episode, or previous line'],
  ['Enter', 'open the line'],
  ['/', 'search'],
  ['u', 'up: from an episode to its list, from a list to its run'],
  ['?', 'this help'],
  ['Esc', 'leave a field, close the help'],
];

export function useKeys() {
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const press = (event) => key(event, setHelp);
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, []);
  return [help, setHelp];
}

export function Help({ keys, close }) {
  return dialog(
    { open: true, class: 'help', 'aria-label': 'Keys' },
    h2('Keys'),
    dl({ class: 'facts' }, keys.flatMap(([name, text]) => [dt({ key: `${name} key` }, kbd(name)), dd({ key: name }, text)])),
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
