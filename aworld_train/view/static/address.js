// What is shown is in the address, so that it can be shared: in its query, or in a file's fragment, as a file has no
// other part that a page may change.
import { useEffect, useState } from './vendor/hooks.js';
import { a } from './elements.js';

const inFile = location.protocol === 'file:' || document.getElementById('report') !== null;

export function current() {
  return new URLSearchParams(inFile ? location.hash.slice(1) : location.search);
}

export function addressOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== '') query.append(name, String(each));
    }
  }
  return `${inFile ? '#' : '?'}${query}`;
}

export function go(parameters, { replace = false } = {}) {
  const target = addressOf(parameters);
  if (inFile) {
    if (replace) location.replace(target);
    else location.hash = target;
    return;
  }
  if (replace) history.replaceState(null, '', target === '?' ? '/' : target);
  else history.pushState(null, '', target === '?' ? '/' : target);
  window.dispatchEvent(new Event('addresschange'));
}

export function changed(changes) {
  // The present parameters with some changed; null and '' remove.
  const all = {};
  for (const name of new Set(current().keys())) all[name] = current().getAll(name);
  return { ...all, ...changes };
}

export function useAddress() {
  const [text, setText] = useState(String(current()));
  useEffect(() => {
    const update = () => setText(String(current()));
    const names = ['popstate', 'hashchange', 'addresschange'];
    names.forEach((name) => window.addEventListener(name, update));
    return () => names.forEach((name) => window.removeEventListener(name, update));
  }, []);
  return new URLSearchParams(text);
}

export function Link({ to, replace = false, children, ...rest }) {
  const follow = (event) => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to, { replace });
    window.scrollTo(0, 0);
  };
  return a({ href: addressOf(to), onClick: follow, ...rest }, children);
}
