// Keys of views. A key that is typed into a field belongs to the field.
import { useLayoutEffect } from 'preact/hooks';

/** What a key does; the name is `event.key`. */
export type Keys = Record<string, (event: KeyboardEvent) => void>;

const stack: Keys[] = [];
/** Keys of the frame: a view may give them another meaning. */
const frame: Keys[] = [];

addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target as HTMLElement | null;
  if (target?.closest('input, textarea, select, [contenteditable], .xterm, dialog')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  // These press what has the focus.
  if ((event.key === 'Enter' || event.key === ' ') && target?.closest('a, button, summary')) return;
  const action = [...frame, ...stack].findLast((keys) => keys[event.key])?.[event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
});

/** Handles keys while a view is shown. */
export function useKeys(keys: Keys, list: Keys[] = stack): void {
  // Before the next key: a later effect would let a quick second press act on what was shown before the first.
  useLayoutEffect(() => {
    list.push(keys);
    return () => {
      list.splice(list.indexOf(keys), 1);
    };
  });
}

/** Handles keys that no view handles. */
export const useFrameKeys = (keys: Keys): void => useKeys(keys, frame);

/** Puts the focus into the search field of the view. */
export function focusSearch(): void {
  document.querySelector<HTMLInputElement>('main [data-search]')?.focus();
}
