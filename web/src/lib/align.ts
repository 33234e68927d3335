// Turns of several episodes on common rows: those that do alike stand beside each other.
import { likeness, wordsOf } from './diff';

/** Rows of positions, one per column, -1 where a column has no turn; and how many rows were paired by their number only. */
export type Aligned = { rows: number[][]; byNumber: number };

/** Turns of a column that are compared; later ones are paired by number. */
export const COMPARED = 5000;
/** Pairs of turns that are compared with each other. Longer stretches are divided at turns that occur once in both. */
const MOST_CELLS = 250_000;
/** What two turns must have in common to stand beside each other. */
const LEAST = 0.15;

type Pair = [left: number, right: number];

/** Aligns columns by what their turns do, one after the other, or by number: `columns` are titles of the turns to compare, `lengths` are numbers of turns. */
export function align(columns: string[][], lengths: number[], by: 'likeness' | 'number'): Aligned {
  const [first = [], ...others] = columns;
  let rows = first.map((_, i) => [i]);
  let byNumber = 0;
  others.forEach((column, k) => {
    const left = rows.map((row) => row.map((at, c) => (at >= 0 ? (columns[c]?.[at] ?? '') : '')).find((title) => title !== '') ?? '');
    const found: Pair[] = [];
    if (by === 'number') numbered(left.length, column.length, [0, 0], found);
    else byNumber += matched(left, column, found);
    rows = found.map(([i, j]) => [...(i >= 0 ? (rows[i] ?? []) : Array<number>(k + 1).fill(-1)), j]);
  });
  for (let at = COMPARED; at < Math.max(...lengths); at++) {
    const row = lengths.map((length) => (at < length ? at : -1));
    rows.push(row);
    if (by === 'likeness' && row.filter((it) => it >= 0).length > 1) byNumber++;
  }
  return { rows, byNumber };
}

/** Adds the pairs of two lists to `out`; returns how many of them were paired by number. */
function matched(left: string[], right: string[], out: Pair[]): number {
  if (left.length * right.length <= MOST_CELLS) {
    compared(left, right, [0, 0], out);
    return 0;
  }
  let count = 0;
  let [i, j] = [0, 0];
  for (const [nextLeft, nextRight] of [...anchors(left, right), [left.length, right.length] as Pair]) {
    const [a, b] = [left.slice(i, nextLeft), right.slice(j, nextRight)];
    if (a.length * b.length <= MOST_CELLS) compared(a, b, [i, j], out);
    else {
      numbered(a.length, b.length, [i, j], out);
      count += Math.max(a.length, b.length);
    }
    if (nextLeft < left.length) out.push([nextLeft, nextRight]);
    [i, j] = [nextLeft + 1, nextRight + 1];
  }
  return count;
}

function numbered(left: number, right: number, [i, j]: Pair, out: Pair[]): void {
  for (let k = 0; k < Math.max(left, right); k++) out.push([k < left ? i + k : -1, k < right ? j + k : -1]);
}

/** Pairs of titles that occur once in each list, the most that are in the same order in both. */
function anchors(left: string[], right: string[]): Pair[] {
  const once = (list: string[]) => {
    const at = new Map<string, number>();
    list.forEach((title, i) => at.set(title, title === '' || at.has(title) ? -1 : i));
    return at;
  };
  const [inLeft, inRight] = [once(left), once(right)];
  const pairs: Pair[] = [];
  for (const [title, i] of inLeft) {
    const j = inRight.get(title) ?? -1;
    if (i >= 0 && j >= 0) pairs.push([i, j]);
  }
  pairs.sort((a, b) => a[0] - b[0]);
  // The longest run of growing positions on the right: the last pairs of runs by length, and who comes before whom.
  const ends: number[] = [];
  const before: number[] = [];
  const right1 = (pair: number | undefined) => pairs[pair ?? -1]?.[1] ?? -1;
  pairs.forEach((pair, at) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (right1(ends[middle]) < pair[1]) low = middle + 1;
      else high = middle;
    }
    before[at] = ends[low - 1] ?? -1;
    ends[low] = at;
  });
  const run: Pair[] = [];
  for (let at = ends.at(-1) ?? -1; at >= 0; at = before[at] ?? -1) run.push(pairs[at] as Pair);
  return run.reverse();
}

/** The alignment with the greatest sum of likeness, as for sequences of genes. */
function compared(left: string[], right: string[], [i0, j0]: Pair, out: Pair[]): void {
  const width = right.length + 1;
  const best = new Float64Array((left.length + 1) * width);
  const at = (i: number, j: number) => best[i * width + j] ?? 0;
  const none = new Set<string>();
  const [inLeft, inRight] = [left.map(wordsOf), right.map(wordsOf)];
  const gain = (i: number, j: number) => (left[i] === right[j] ? 1 : likeness(inLeft[i] ?? none, inRight[j] ?? none)) - LEAST;
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) best[i * width + j] = Math.max(at(i + 1, j + 1) + gain(i, j), at(i + 1, j), at(i, j + 1));
  }
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    const both = i < left.length && j < right.length;
    if (both && Math.abs(at(i, j) - (at(i + 1, j + 1) + gain(i, j))) < 1e-9) out.push([i0 + i++, j0 + j++]);
    else if (i < left.length && (j >= right.length || Math.abs(at(i, j) - at(i + 1, j)) < 1e-9)) out.push([i0 + i++, -1]);
    else out.push([-1, j0 + j++]);
  }
}
