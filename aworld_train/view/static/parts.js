// Small parts that several pages have.
import { Fragment, h } from './vendor/preact.js';
import { useState } from './vendor/hooks.js';
import { button, dd, div, dl, dt, p, pre, span, svg, path } from './elements.js';
import { isNumber, number } from './format.js';

const SHOWN_CHARS = 3000;

export function Badge({ kind, children }) {
  return span({ class: `badge ${badgeClass(kind)}` }, children ?? kind);
}

function badgeClass(kind) {
  const name = String(kind ?? '');
  if (['completed', 'answered', 'trained', 'right'].includes(name)) return 'good';
  if (['failed', 'killed', 'unreadable', 'error', 'lost', 'infrastructure', 'wrong'].includes(name)) return 'bad';
  if (['running'].includes(name)) return 'busy';
  if (['unknown', ''].includes(name)) return 'plain';
  return 'warn';
}

export function Failure({ message }) {
  return message ? p({ class: 'failure', role: 'alert' }, message) : null;
}

export function Waiting() {
  return p({ class: 'waiting' }, 'Reading …');
}

export function Sparkline({ values, label }) {
  const finite = (values ?? []).filter(isNumber);
  if (finite.length < 2) return span({ class: 'dim' }, finite.length ? number(finite[0]) : '');
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  const y = (value) => (high === low ? 12 : 22 - (20 * (value - low)) / (high - low));
  const line = finite.map((value, i) => `${i ? 'L' : 'M'}${((118 * i) / (finite.length - 1) + 1).toFixed(1)} ${y(value).toFixed(1)}`);
  return svg(
    { class: 'sparkline', viewBox: '0 0 120 24', role: 'img', 'aria-label': `${label}: ${number(low)} to ${number(high)}` },
    path({ d: line.join('') }),
  );
}

export function Text({ children, class: kind = '' }) {
  // A text that a model, a tool or a dataset wrote. Its direction is its own and changes nothing around it.
  const [whole, setWhole] = useState(false);
  const text = String(children ?? '');
  const long = text.length > SHOWN_CHARS * 1.2;
  const shown = long && !whole ? text.slice(0, SHOWN_CHARS) : text;
  return h(
    Fragment,
    null,
    pre({ class: `text ${kind}`, dir: 'auto' }, shown),
    long &&
      button({ class: 'more', onClick: () => setWhole(!whole) }, whole ? 'Show less' : `Show all ${number(text.length)} characters`),
  );
}

export function Facts({ values }) {
  // Pairs of a name and what is known of it; what is not known is left out.
  const known = values.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false);
  return dl({ class: 'facts' }, known.map(([name, value]) => h(Fragment, { key: name }, dt(name), dd({ dir: 'auto' }, value))));
}

export function Tabs({ children }) {
  return div({ class: 'tabs', role: 'tablist' }, children);
}

export function counts(object) {
  const entries = Object.entries(object ?? {});
  return entries.length ? entries.map(([name, count]) => `${name} ${number(count)}`).join(', ') : null;
}
