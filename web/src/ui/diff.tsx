// Differences as lines with numbers, or as marked words.
import { useMemo } from 'preact/hooks';
import { lines, type Change } from '../lib/diff';
import type { DiffLine } from '../lib/types';
import { Brush, marksOf, Text, type Against, type Marks } from './text';

/** A line; `at` is where it starts in its text. */
type Line = { kind: 'same' | 'old' | 'new' | 'gap'; text: string; old?: number; new?: number; at?: number };
/** Words to mark in the text before and in the one after. */
type SideMarks = { old: Marks | null; new: Marks | null };

const SIGN = { same: ' ', old: '−', new: '+', gap: '' };
const MOST = 400;

/** The lines of a difference that the server computed. */
export function ServerDiff({ diff, label }: { diff: DiffLine[]; label: string }) {
  const rows = useMemo(() => numbered(diff), [diff]);
  return <Lines rows={rows} label={label} />;
}

/** The difference of two texts; lines far from any change are left out. `against` is the same change in another column. */
export function TextDiff({ before, after, label, against }: { before: string; after: string; label: string; against?: { before: string; after: string; as: Against['as'] } }) {
  const rows = useMemo(() => shortened(lines(before, after)), [before, after]);
  const marks = useMemo(() => against && { old: marksOf(before, { text: against.before, as: against.as }), new: marksOf(after, { text: against.after, as: against.as }) }, [before, after, against?.before, against?.after, against?.as]);
  return <Lines rows={rows} label={label} marks={marks} />;
}

function Lines({ rows, label, marks }: { rows: Line[]; label: string; marks?: SideMarks }) {
  const shown = rows.slice(0, MOST);
  const text = (row: Line) => new Brush(marks?.[row.kind === 'old' ? 'old' : 'new'], row.at).paint(row.text);
  return (
    <div class="diff" role="group" aria-label={label}>
      {shown.map((row, i) =>
        row.kind === 'gap' ? <div key={i} class="diff-gap"><Text>{row.text}</Text></div> : (
          <div key={i} class={`diff-line diff-${row.kind}`}>
            <span>{row.old ?? ''}</span>
            <span>{row.new ?? ''}</span>
            <span>{SIGN[row.kind]}</span>
            <span>{text(row)}</span>
          </div>
        ),
      )}
      {rows.length > MOST && <div class="diff-gap">{rows.length - MOST} more lines</div>}
    </div>
  );
}

function numbered(diff: DiffLine[]): Line[] {
  let old = 1;
  let next = 1;
  return diff.map((line): Line => {
    if (line.type === 'hunk') {
      const match = /-(\d+)(?:,\d+)? \+(\d+)/.exec(line.text);
      if (match) [old, next] = [Number(match[1]), Number(match[2])];
      return { kind: 'gap', text: line.text };
    }
    if (line.type === 'removed') return { kind: 'old', text: line.text, old: old++ };
    if (line.type === 'added') return { kind: 'new', text: line.text, new: next++ };
    return { kind: 'same', text: line.text, old: old++, new: next++ };
  });
}

function shortened(changes: Change[]): Line[] {
  const CONTEXT = 3;
  const near = changes.map((c) => c.kind !== 'same');
  const keep = changes.map((_, i) => near.slice(Math.max(0, i - CONTEXT), i + CONTEXT + 1).some(Boolean));
  const out: Line[] = [];
  let old = 1;
  let next = 1;
  let skipped = 0;
  const at = { old: 0, new: 0 };
  changes.forEach((c, i) => {
    const row: Line = { kind: c.kind, text: c.text, at: at[c.kind === 'old' ? 'old' : 'new'], old: c.kind === 'new' ? undefined : old++, new: c.kind === 'old' ? undefined : next++ };
    if (c.kind !== 'new') at.old += c.text.length + 1;
    if (c.kind !== 'old') at.new += c.text.length + 1;
    if (!keep[i]) {
      skipped++;
      return;
    }
    if (skipped > 0) out.push({ kind: 'gap', text: `${skipped} equal ${skipped === 1 ? 'line' : 'lines'}` });
    skipped = 0;
    out.push(row);
  });
  return out;
}
