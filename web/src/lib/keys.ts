// Keys of views. A key that is typed into a field belongs to the field.
import { useLayoutEffect } from 'preact/hooks';

/** What a key does; the name is `event.key`. */
export type Keys = Record<string, (event: KeyboardEvent) => void>;

const stack: Keys[] = [];

addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = event.target as HTMLElement | null;
  if (target?.closest('input, textarea, select, [contenteditable], .xterm, dialog')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  for (const keys of [...stack].reverse()) {
    const action = keys[event.key];
    if (!action) continue;
    event.preventDefault();
    action(event);
    return;
  }
});

/** Handles keys while a view is shown. */
export function useKeys(keys: Keys): void {
  // Before the next key: a later effect would let a quick second press act on what was shown before the first.
  useLayoutEffect(() => {
    stack.push(keys);
    return () => {
      stack.splice(stack.indexOf(keys), 1);
    };
  });
}

/** Puts the focus into the search field of the view. */
export function focusSearch(): void {
  document.querySelector<HTMLInputElement>('main [data-search]')?.focus();
}
