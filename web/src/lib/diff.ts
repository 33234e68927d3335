// Differences of two texts by lines, and of two short texts by words. Bounded: beyond the bound everything differs.

/** A line or word: in both (`same`), only in the first (`old`), only in the second (`new`). */
export type Change = { kind: 'same' | 'old' | 'new'; text: string };

const MOST_CELLS = 4_000_000;
/** The same for words, which are compared while the reader scrolls. */
const MOST_WORD_CELLS = 1_000_000;
/** Longer texts are not compared by words. */
const LONGEST = 200_000;

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

/** A part of a text: where it starts and where it ends. */
export type Span = [start: number, end: number];

/** The words of each of two texts that the other one does not have at that place. */
export function differing(before: string, after: string): { old: Span[]; new: Span[] } {
  const spans: { old: Span[]; new: Span[] } = { old: [], new: [] };
  if (before === after || Math.max(before.length, after.length) > LONGEST) return spans;
  const at = { old: 0, new: 0 };
  const texts = { old: before, new: after };
  for (const { kind, text } of wordChanges(before, after)) {
    for (const side of ['old', 'new'] as const) {
      if (kind !== side && kind !== 'same') continue;
      const start = at[side];
      at[side] += text.length;
      if (kind === 'same') continue;
      const last = spans[side].at(-1);
      if (last && /^[ \t]*$/.test(texts[side].slice(last[1], start))) last[1] = at[side];
      else spans[side].push([start, at[side]]);
    }
  }
  return spans;
}

/** The differences of two texts by words, spaces and signs; those of long texts by lines, and by words within these. */
function wordChanges(before: string, after: string): Change[] {
  const [a, b] = [tokens(before), tokens(after)];
  if (a.length * b.length <= MOST_WORD_CELLS) return changes(a, b);
  const out: Change[] = [];
  const parts: Record<'old' | 'new', string> = { old: '', new: '' };
  const close = () => {
    const [c, d] = [tokens(parts.old), tokens(parts.new)];
    if (c.length * d.length <= MOST_WORD_CELLS) out.push(...changes(c, d));
    else out.push({ kind: 'old', text: parts.old }, { kind: 'new', text: parts.new });
    parts.old = parts.new = '';
  };
  const split = (text: string) => text.split(/(?<=\n)/);
  for (const change of changes(split(before), split(after))) {
    if (change.kind === 'same') {
      close();
      out.push(change);
    } else parts[change.kind] += change.text;
  }
  close();
  return out;
}

/** The words of the beginning of a text. */
export const wordsOf = (text: string): Set<string> => new Set(tokens(text.slice(0, 2000)).filter((t) => WORD.test(t)));

/** How alike the words of two texts are, 0 to 1: shared words over all words. */
export function likeness(left: Set<string>, right: Set<string>): number {
  if (left.size === 0 || right.size === 0) return 0;
  let shared = 0;
  for (const token of left) if (right.has(token)) shared++;
  return shared / (left.size + right.size - shared);
}

const WORD = /[\p{L}\p{N}_]/u;
const tokens = (text: string): string[] => text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];

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
