// Addresses of views. Everything is behind the hash, so the same addresses work on a server, below any prefix and in a
// file on a disk, and the browser's history is the only state.
import { signal } from '@preact/signals';

/** A view and its options. */
export type Route = { path: string[]; query: URLSearchParams };

const parse = (hash: string): Route => {
  // `#token=...` is not a view: it is how the program hands its key to the page.
  const text = hash.startsWith('#token=') ? '' : hash.replace(/^#\/?/, '');
  const at = text.indexOf('?');
  const path = (at < 0 ? text : text.slice(0, at)).split('/').filter((part) => part !== '');
  return { path: path.map(decode), query: new URLSearchParams(at < 0 ? '' : text.slice(at + 1)) };
};

/** Where the reader is. */
export const route = signal<Route>(parse(location.hash));

/** The address that `route` is of. A link changes that of the window first. */
const hash = () => (location.hash.startsWith('#token=') ? '' : location.hash);
let parsed = hash();

addEventListener('hashchange', () => {
  parsed = hash();
  route.value = parse(location.hash);
});

/** The address of a view. Parts of the path may contain any character. */
export function link(path: (string | number)[], query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '' && one !== false) search.append(key, String(one));
    }
  }
  const text = search.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join('/')}${text ? `?${text}` : ''}`;
}

/** Goes to a view. */
export function go(address: string): void {
  location.hash = address;
}

/** Changes options of this view without a new entry in the history: for filters while they are typed. */
export function setQuery(patch: Query): void {
  // The reader has followed a link: these options were of the view before.
  if (hash() !== parsed) return;
  const query: Query = {};
  for (const key of new Set(route.value.query.keys())) query[key] = route.value.query.getAll(key);
  const address = link(route.value.path, { ...query, ...patch });
  if (address === location.hash) return;
  history.replaceState(history.state, '', address);
  parsed = hash();
  route.value = parse(address);
}

/** The row that was at the top when the reader left this entry of the history, or 0. */
export function savedRow(): number {
  const state = history.state as { row?: unknown } | null;
  return typeof state?.row === 'number' ? state.row : 0;
}

/** Remembers the row at the top with the entry of the history, so that going back returns to it. */
export function saveRow(row: number): void {
  if (savedRow() !== row) history.replaceState({ row }, '');
}

type Value = string | number | boolean | null | undefined;
type Query = Record<string, Value | Value[]>;

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
