// Light and dark: what the system says, unless the reader chose one.
import { effect, signal } from '@preact/signals';

/** The reader's choice. */
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'lis-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

/** The chosen theme. */
export const theme = signal<Theme>(stored());
/** The theme that is shown. */
export const shown = signal<'light' | 'dark'>('light');

effect(() => {
  const choice = theme.value;
  const now = choice === 'system' ? (dark.matches ? 'dark' : 'light') : choice;
  shown.value = now;
  document.documentElement.dataset.theme = now;
});
dark.addEventListener('change', () => {
  theme.value = theme.peek() === 'system' ? ((shown.value = dark.matches ? 'dark' : 'light'), (document.documentElement.dataset.theme = shown.value), 'system') : theme.peek();
});

/** Chooses a theme and remembers it. */
export function choose(next: Theme): void {
  theme.value = next;
  try {
    if (next === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // A page without storage forgets the choice.
  }
}

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    return 'system';
  }
}
