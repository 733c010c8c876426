// Where the page's data come from: the server, which is asked again when a run has changed, or the file of a report.
import { useEffect, useRef, useState } from './vendor/hooks.js';

const POLL_SECONDS = 2;
const TOLERANCE = 10; // what takes a second to read is read again after ten at the earliest
let source = null;

export function setSource(chosen) {
  source = chosen;
}

export function isLive() {
  return source.live;
}

export function reportFacts() {
  return source.report ?? null;
}

export function imageAddress(run, digest) {
  return source.image(run, digest);
}

export function serverSource() {
  return {
    live: true,
    image: (run, digest) => `/api/image?${new URLSearchParams({ run, digest })}`,
    async get(name, parameters) {
      const query = new URLSearchParams();
      for (const [key, value] of Object.entries(parameters)) {
        for (const each of Array.isArray(value) ? value : [value]) {
          if (each !== null && each !== undefined && each !== '') query.append(key, String(each));
        }
      }
      let response;
      try {
        response = await fetch(`/api/${name}?${query}`, { credentials: 'same-origin' });
      } catch {
        throw new Error('The server does not answer: `aworld-train view` has ended.');
      }
      let body;
      try {
        body = await response.json();
      } catch {
        throw new Error(`The server answered with status ${response.status}.`);
      }
      if (response.ok) return body;
      const error = new Error(body.error?.message ?? `The server answered with status ${response.status}.`);
      error.final = response.status === 400 && body.error?.kind === 'usage';
      throw error;
    },
  };
}

export function useData(name, parameters, version = '') {
  // {data, error}: what was there stays while the same is read again. Nothing is read until the version is known, and
  // what was asked wrongly is not asked again.
  const key = name === null ? '' : `${name} ${JSON.stringify(parameters)}`;
  const [state, setState] = useState({ key: '', data: null, error: null });
  const job = useRef(null);
  const read = (own) => {
    const began = performance.now();
    const over = (result) => {
      if (job.current !== own) return;
      setState((old) => ({ key, data: old.key === key ? old.data : null, ...result }));
      const wait = TOLERANCE * (performance.now() - began);
      // What changed while it was read is read afterwards, and not while the server is busy with nothing else.
      own.timer = setTimeout(() => {
        own.busy = false;
        if (own.again && !own.refused) restart(own);
      }, own.again ? wait : 0);
    };
    const failed = (error) => {
      own.refused = error.final;
      over({ error: error.message });
    };
    source.get(name, parameters).then((data) => over({ data, error: null }), failed);
  };
  const restart = (own) => {
    if (job.current !== own) return;
    Object.assign(own, { busy: true, again: false });
    read(own);
  };
  useEffect(() => {
    if (name === null || version === null) return;
    if (job.current?.key === key && (job.current.busy || job.current.refused)) {
      job.current.again = true;
      return;
    }
    job.current = { key, busy: true, again: false, timer: 0 };
    read(job.current);
  }, [key, version]);
  useEffect(
    () => () => {
      clearTimeout(job.current?.timer);
      job.current = null;
    },
    [],
  );
  return state.key === key ? state : { key, data: null, error: null };
}

export function usePages(name, parameters, version) {
  // As useData, but what was there before stays until the new comes: a list does not blink when its filter changes.
  const state = useData(name, parameters, version);
  const last = useRef(null);
  if (state.data) last.current = state.data;
  return { ...state, data: state.data ?? (state.error ? null : last.current), waiting: !state.data && !state.error };
}

export function useVersion(runs) {
  // Changes when what is recorded of these runs does; null until it is known.
  const [version, setVersion] = useState(source.live ? null : '');
  const key = runs === null ? null : JSON.stringify(runs);
  useEffect(() => {
    if (!source.live || key === null) return undefined;
    let over = false;
    let timer = 0;
    const poll = async () => {
      const began = performance.now();
      if (!document.hidden) {
        try {
          const found = await source.get('version', { run: JSON.parse(key) });
          if (!over) setVersion(found.version);
        } catch {
          if (!over) setVersion((last) => last ?? ''); // The look-up of data says what is wrong.
        }
      }
      const seconds = (performance.now() - began) / 1000;
      if (!over) timer = setTimeout(poll, 1000 * Math.max(POLL_SECONDS, TOLERANCE * seconds));
    };
    poll();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key]);
  return version;
}
