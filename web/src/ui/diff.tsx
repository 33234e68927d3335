// Differences as lines with numbers, or as marked words.
import { useMemo } from 'preact/hooks';
import { lines, wordChanges, type Change } from '../lib/diff';
import type { DiffLine } from '../lib/types';
import { Text } from './text';

type Line = { kind: 'same' | 'old' | 'new' | 'gap'; text: string; old?: number; new?: number };

const SIGN = { same: ' ', old: '−', new: '+', gap: '' };
const MOST = 400;

/** The lines of a difference that the server computed. */
export function ServerDiff({ diff, label }: { diff: DiffLine[]; label: string }) {
  const rows = useMemo(() => numbered(diff), [diff]);
  return <Lines rows={rows} label={label} />;
}

/** The difference of two texts; lines far from any change are left out. */
export function TextDiff({ before, after, label }: { before: string; after: string; label: string }) {
  const rows = useMemo(() => shortened(lines(before, after)), [before, after]);
  return <Lines rows={rows} label={label} />;
}

/** The second text, with the words marked that the first one does not have. */
export function WordDiff({ before, after }: { before: string; after: string }) {
  const parts = useMemo(() => wordChanges(before, after), [before, after]);
  return <>{parts.map((p, i) => (p.kind === 'same' ? <Text key={i}>{p.text}</Text> : p.kind === 'new' ? <ins key={i} class="word"><Text>{p.text}</Text></ins> : null))}</>;
}

function Lines({ rows, label }: { rows: Line[]; label: string }) {
  const shown = rows.slice(0, MOST);
  return (
    <div class="diff" role="group" aria-label={label}>
      {shown.map((row, i) =>
        row.kind === 'gap' ? <div key={i} class="diff-gap"><Text>{row.text}</Text></div> : (
          <div key={i} class={`diff-line diff-${row.kind}`}>
            <span>{row.old ?? ''}</span>
            <span>{row.new ?? ''}</span>
            <span>{SIGN[row.kind]}</span>
            <span><Text>{row.text}</Text></span>
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
  changes.forEach((c, i) => {
    const row: Line = { kind: c.kind, text: c.text, old: c.kind === 'new' ? undefined : old++, new: c.kind === 'old' ? undefined : next++ };
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
