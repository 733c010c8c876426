// HTML elements as functions: `div({class: 'x'}, child, ...)`. Children that are texts become text nodes, whatever they
// contain: nothing on this page is ever read as HTML. Characters that would hide or reorder others are shown by name.
import { h, isValidElement } from './vendor/preact.js';

// Controls but tab and line feed; marks that change the direction of what follows.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

export function visible(text) {
  return text.replace(HIDDEN, (character) => {
    const point = character.charCodeAt(0);
    if (character === '\r') return '';
    return point < 0x20 ? String.fromCharCode(0x2400 + point) : `⟨U+${point.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}

function shown(child) {
  if (typeof child === 'string') return visible(child);
  return Array.isArray(child) ? child.map(shown) : child;
}

function element(tag) {
  return (...children) => {
    const first = children[0];
    const has = first !== null && typeof first === 'object' && !Array.isArray(first) && !isValidElement(first);
    return has ? h(tag, first, ...children.slice(1).map(shown)) : h(tag, null, ...children.map(shown));
  };
}

export const a = element('a');
export const button = element('button');
export const code = element('code');
export const dd = element('dd');
export const details = element('details');
export const dialog = element('dialog');
export const div = element('div');
export const dl = element('dl');
export const dt = element('dt');
export const footer = element('footer');
export const form = element('form');
export const h1 = element('h1');
export const h2 = element('h2');
export const h3 = element('h3');
export const header = element('header');
export const img = element('img');
export const input = element('input');
export const kbd = element('kbd');
export const label = element('label');
export const li = element('li');
export const main = element('main');
export const nav = element('nav');
export const ol = element('ol');
export const option = element('option');
export const p = element('p');
export const path = element('path');
export const pre = element('pre');
export const section = element('section');
export const select = element('select');
export const small = element('small');
export const span = element('span');
export const strong = element('strong');
export const summary = element('summary');
export const svg = element('svg');
export const tbody = element('tbody');
export const td = element('td');
export const th = element('th');
export const thead = element('thead');
export const tr = element('tr');
export const ul = element('ul');

const plainTable = element('table');

export function table(...children) {
  // A table that is wider than its place scrolls in it, and the page does not.
  return div({ class: 'wide' }, plainTable(...children));
}
