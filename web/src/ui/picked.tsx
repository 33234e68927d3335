// Episodes that are chosen in any table, to be put side by side.
import { signal } from '@preact/signals';
import { counted } from '../lib/format';
import { link } from '../lib/router';

/** Columns: a browser has few connections to a server, and a window little room. */
export const MOST_SIDES = 6;

/** How the address of columns names an episode, and what its run is called there. */
export const sideOf = (run: string, attempt: string, label?: string): string => [run, attempt, ...(label ? [label] : [])].map(encodeURIComponent).join('/');

/** The chosen episodes, as the address of columns names them. They stay chosen in other views. */
const picked = signal<string[]>([]);

/** Chooses an episode. */
export function Pick({ run, attempt, name }: { run: string; attempt: string; name: string }) {
  const side = sideOf(run, attempt);
  const all = picked.value;
  const chosen = all.includes(side);
  return <input type="checkbox" checked={chosen} disabled={!chosen && all.length >= MOST_SIDES} onChange={() => (picked.value = chosen ? all.filter((it) => it !== side) : [...all, side])} aria-label={`Choose ${name} for a column`} />;
}

/** How many episodes are chosen, and a link that puts them side by side. */
export function PickedEpisodes() {
  const all = picked.value;
  if (all.length === 0) return null;
  return (
    <>
      <span class="soft">{counted(all.length, 'episode')} chosen</span>
      {all.length > 1 && <a class="button primary" href={link(['side'], { e: all })}>Side by side</a>}
      <button type="button" class="button" onClick={() => (picked.value = [])}>Clear</button>
    </>
  );
}
