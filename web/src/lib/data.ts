// Data of views: one answer, or a long list that is loaded in pages as it is scrolled.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { follow, get } from './api';
import type { Query } from './embedded';
import { route, setQuery } from './router';
import type { RunRow } from './types';

/** What a request gave so far. Earlier data stays while a new request runs, so the view does not jump. */
export type Loaded<T> = { data: T | null; error: Error | null; loading: boolean; reload: () => void };

/** Gets one answer; `null` as path asks for nothing. */
export function useData<T>(path: string | null, query: Query = {}): Loaded<T> {
  const key = path === null ? null : `${path} ${JSON.stringify(query)}`;
  const [state, setState] = useState<{ key: string | null; data: T | null; error: Error | null }>({ key: null, data: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    // In the export an answer, or its absence, is known at once: both come the same way.
    Promise.resolve()
      .then(() => get<T>(path, query, stop.signal))
      .then(
        (data) => !stop.signal.aborted && setState({ key, data, error: null }),
        (error: Error) => !stop.signal.aborted && setState((old) => ({ key, data: old.key === key ? old.data : null, error })),
      );
    return () => stop.abort();
  }, [key, turn]);
  const fresh = state.key === key;
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  return { data: fresh ? state.data : null, error: fresh ? state.error : null, loading: path !== null && !fresh, reload };
}

/** A list of which only some pages are known. */
export type Paged<T, P> = {
  length: number;
  at: (index: number) => T | undefined;
  need: (first: number, last: number) => void;
  /** The newest page's other fields. */
  page: P | null;
  error: Error | null;
  loading: boolean;
  refresh: () => void;
};

/** Loads a list page by page. `items` takes the rows out of an answer. */
export function usePaged<T, P extends { offset?: number }>(path: string | null, query: Query, items: (page: P) => T[], length: (page: P) => number, size = 200): Paged<T, P> {
  const key = path === null ? '' : `${path} ${JSON.stringify(query)}`;
  const [, redraw] = useState(0);
  const store = useRef<Store<T, P>>({ key: '', shown: '', pages: new Map(), asked: new Set(), length: 0, page: null, error: null, epoch: 0, requests: 0, range: [0, 0] });
  const s = store.current;
  if (s.key !== key) {
    s.key = key;
    s.epoch++;
    s.asked = new Set();
    s.error = null;
  }
  const load = useCallback(
    (number: number) => {
      if (path === null || s.asked.has(number)) return;
      s.asked.add(number);
      const epoch = s.epoch;
      const request = ++s.requests;
      Promise.resolve()
        .then(() => get<P>(path, { ...query, offset: number * size, limit: size }))
        .then(
          (page) => {
            if (epoch !== s.epoch) return;
            if (s.shown !== key) {
              s.pages = new Map();
              s.shown = key;
            }
            // Answers may overtake each other.
            if ((s.pages.get(number)?.request ?? 0) > request) return;
            s.pages.set(number, { request, rows: items(page) });
            s.length = length(page);
            s.page = page;
            s.error = null;
            redraw((n) => n + 1);
          },
          (error: Error) => {
            if (epoch !== s.epoch) return;
            s.error = error;
            s.asked.delete(number);
            redraw((n) => n + 1);
          },
        );
    },
    [key],
  );
  const need = useCallback(
    (first: number, last: number) => {
      s.range = [first, last];
      for (let n = Math.floor(first / size); n <= Math.floor(last / size); n++) load(n);
    },
    [load],
  );
  // The list may be scrolled when it gets another order.
  useEffect(() => {
    load(0);
    need(...s.range);
  }, [key]);
  const refresh = useCallback(() => {
    // What is in view now; the rest when it comes into view.
    s.asked = new Set();
    need(...s.range);
  }, [need]);
  return useMemo(
    () => ({ length: s.length, at: (i: number) => s.pages.get(Math.floor(i / size))?.rows[i % size], need, page: s.page, error: s.error, loading: s.shown !== key && !s.error, refresh }),
    [s.length, s.page, s.error, s.shown, key, need, refresh],
  );
}

type Store<T, P> = { key: string; shown: string; pages: Map<number, { request: number; rows: T[] }>; asked: Set<number>; length: number; page: P | null; error: Error | null; epoch: number; requests: number; range: [number, number] };

/** The search of a view: what is typed, how to type, and what the address says once typing pauses. */
export function useSearch(): [typed: string, type: (text: string) => void, settled: string] {
  const settled = route.value.query.get('q') ?? '';
  const [typed, type] = useState(settled);
  const written = useRef(settled);
  useEffect(() => {
    // A link, or the history: it replaces what was typed.
    if (settled === written.current) return;
    written.current = settled;
    type(settled);
  }, [settled]);
  useEffect(() => {
    if (typed === written.current) return undefined;
    const timer = setTimeout(() => {
      written.current = typed;
      setQuery({ q: typed || null });
    }, 180);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed, type, settled];
}

/** Rows of runs that changed and ids of runs that are gone; null where changes may have been missed. */
export type Changes = { runs: RunRow[]; removed: string[] } | null;

/** Follows the changes of runs while a view is shown. */
export function useChanges(handle: (changes: Changes) => void): void {
  const latest = useRef(handle);
  latest.current = handle;
  useEffect(() => follow(() => 'page/api/changes', { runs: (data) => latest.current({ runs: [], removed: [], ...(data as object) }) }, () => latest.current(null)), []);
}
