// Differences of two texts by lines, and of two short texts by words. Bounded: beyond the bound everything differs.

/** A line or word: in both (`same`), only in the first (`old`), only in the second (`new`). */
export type Change = { kind: 'same' | 'old' | 'new'; text: string };

const MOST_CELLS = 4_000_000;

/** The differences of two lists, by a longest common subsequence. */
export function changes(before: string[], after: string[]): Change[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const a = before.slice(start, before.length - end);
  const b = after.slice(start, after.length - end);
  return [
    ...before.slice(0, start).map((text): Change => ({ kind: 'same', text })),
    ...middle(a, b),
    ...before.slice(before.length - end).map((text): Change => ({ kind: 'same', text })),
  ];
}

/** The differences of two texts by lines. */
export const lines = (before: string, after: string): Change[] => changes(before.split('\n'), after.split('\n'));

/** The differences of two texts by words, spaces and signs. */
export const wordChanges = (before: string, after: string): Change[] => changes(tokens(before), tokens(after));

/** How alike two texts are, 0 to 1: shared words over all words. */
export function likeness(a: string, b: string): number {
  if (a === b) return 1;
  const left = new Set(tokens(a.slice(0, 2000)).filter((t) => /\w/.test(t)));
  const right = new Set(tokens(b.slice(0, 2000)).filter((t) => /\w/.test(t)));
  if (left.size === 0 || right.size === 0) return 0;
  let shared = 0;
  for (const token of left) if (right.has(token)) shared++;
  return shared / (left.size + right.size - shared);
}

const tokens = (text: string): string[] => text.match(/\w+|\s+|[^\w\s]/g) ?? [];

function middle(a: string[], b: string[]): Change[] {
  const all = (list: string[], kind: Change['kind']) => list.map((text): Change => ({ kind, text }));
  if (a.length === 0 || b.length === 0 || a.length * b.length > MOST_CELLS) return [...all(a, 'old'), ...all(b, 'new')];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? (table[(i + 1) * width + j + 1] ?? 0) + 1 : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  const out: Change[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      out.push({ kind: 'same', text: a[i] ?? '' });
      i++;
      j++;
    } else if ((table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0)) out.push({ kind: 'old', text: a[i++] ?? '' });
    else out.push({ kind: 'new', text: b[j++] ?? '' });
  }
  return [...out, ...all(a.slice(i), 'old'), ...all(b.slice(j), 'new')];
}
