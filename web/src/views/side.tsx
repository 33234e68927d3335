// Two or more episodes side by side. Similar turns are on one row. Words that only the first column has are marked as
// removed in it, words that another column has instead as added there.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { align, COMPARED } from '../lib/align';
import { address } from '../lib/api';
import { useEpisode, type Episode } from '../lib/episode';
import { count, counted, duration, score, short } from '../lib/format';
import { link, route, setQuery } from '../lib/router';
import type { Attempt, Turn } from '../lib/types';
import { Badge, Choice, Empty, Failed, Mark, StateBadge } from '../ui/parts';
import { MOST_SIDES } from '../ui/picked';
import { Marked, Text, type Against } from '../ui/text';
import { useBarWidth, VirtualList } from '../ui/virtual';
import { nameOf } from './episode';
import { isSame, Omitted, partsOf, TurnBars, TurnEvents, turnTitle, type Parts } from './turn';

/** Running episodes that are followed: a browser has few connections to a server. */
const FOLLOWED = 3;

type Side = { run: string; attempt: string; label: string; base: string };
type Column = { attempt: Attempt; episode: Episode };
type Loaded = { column: Column | null; error: Error | null; retry: () => void };

export function SideView() {
  const { query } = route.value;
  const key = query.getAll('e').join('\n');
  const sides = useMemo(() => key.split('\n').filter(Boolean).slice(0, MOST_SIDES).map(parse), [key]);
  const [loaded, setLoaded] = useState<Record<string, Loaded>>({});
  const by = (query.get('align') ?? 'likeness') as 'likeness' | 'number';
  const all = sides.map((side) => loaded[side.base]);
  const columns = all.map((it) => it?.column ?? null);
  const ready = all.every((it) => it?.column || it?.error) && columns.some((column) => column);
  // Turns beyond those that are compared are loaded when they are seen: the rows stay as they are.
  const compared = columns.map((c) => c?.episode.turns.slice(0, COMPARED) ?? []);
  const lengths = columns.map((c) => c?.episode.turns.length ?? 0);
  const versions = compared.map((turns, i) => `${lengths[i]}-${turns.filter(Boolean).length}`).join();
  const aligned = useMemo(() => align(compared.map((turns) => Array.from(turns, titleOf)), lengths, by), [ready, versions, by, key]);
  const ref = useRef<HTMLDivElement>(null);
  const bar = useBarWidth(ref, ready ? aligned.rows.length : 0);
  if (sides.length < 2) return <Empty title="Nothing to put side by side"><p>Choose episodes in the tables of <a href="#/runs">runs</a> and attempts, or open a <a href="#/compare">comparison</a> and choose a problem.</p></Empty>;
  const names = [...new Set(columns.flatMap((column) => (column ? [nameOf(column.attempt)] : [])))];
  const rows = ready ? aligned.rows : [];
  const need = (first: number, last: number) => columns.forEach((column, i) => {
    const seen = rows.slice(first, last + 1).map((row) => row[i] ?? -1).filter((at) => at >= 0);
    if (seen.length > 0) column?.episode.needTurns(Math.min(...seen), Math.max(...seen));
  });
  return (
    <div ref={ref} class="view side" style={{ '--sides': sides.length, '--bar-width': `${bar}px` }}>
      {sides.map((s, i) => <Loader key={`${i} ${s.base}`} side={s} live={sides.length <= FOLLOWED} onLoad={(it) => setLoaded((old) => ({ ...old, [s.base]: it }))} />)}
      <div class="head">
        <nav class="crumbs" aria-label="Where this is"><a href="#/compare" onClick={(e) => { if (history.length > 1) { e.preventDefault(); history.back(); } }}>Compare</a></nav>
        <h1><Text>{names.join(' · ') || 'Side by side'}</Text></h1>
        <span class="grow" />
        {ready && aligned.byNumber > 0 && <span class="warn small" role="status">{counted(aligned.byNumber, 'row')} paired by number: too many turns to compare</span>}
        <Choice label="Alignment" value={by} onChange={(v) => setQuery({ align: v === 'likeness' ? null : v })} options={[{ value: 'likeness', name: 'Align similar turns' }, { value: 'number', name: 'By number' }]} />
      </div>
      <div class="side-scroll">
        <div class="side-row side-heads">{sides.map((s, i) => <SideHead key={i} side={s} loaded={all[i]} first={i === 0} against={answerBeside(columns, i)} />)}</div>
        {all.every((it) => it?.error) ? <Failed error={all[0]?.error ?? new Error('nothing could be loaded')} /> : <VirtualList length={rows.length} estimate={240} label="Turns side by side" role="feed" onRange={need} row={(i) => <Row positions={rows[i] ?? []} columns={columns} sides={sides} />} />}
      </div>
    </div>
  );
}

const parse = (text: string): Side => {
  const [run = '', attempt = '', label = ''] = text.split('/').map(decodeURIComponent);
  return { run, attempt, label, base: address('runs', run, 'attempts', attempt) };
};

const titleOf = (turn: Turn | undefined): string => (turn ? `${turn.calls[0]?.name ?? ''} ${turnTitle(turn)}` : '');

/** The column with which a column is compared: the first one, and that with the next one that is there. */
function beside<T>(column: number, values: (T | null)[]): { value: T; as: Against['as'] } | undefined {
  const value = column > 0 ? values[0] : values.find((other, i) => i > 0 && other !== null);
  return value === null || value === undefined ? undefined : { value, as: column > 0 ? 'new' : 'old' };
}

function answerBeside(columns: (Column | null)[], i: number): Against | undefined {
  const found = beside(i, columns.map((column) => column?.attempt.answer ?? null));
  return found && { text: shortened(found.value), as: found.as };
}

/** Loads one column; it draws nothing. */
function Loader({ side, live, onLoad }: { side: Side; live: boolean; onLoad: (loaded: Loaded) => void }) {
  const { episode, ...attempt } = useEpisode(side.base, live);
  useEffect(() => {
    if (!attempt.error && (!attempt.data || !episode)) return;
    onLoad({ column: attempt.data && episode ? { attempt: attempt.data, episode } : null, error: attempt.error, retry: attempt.reload });
    episode?.needTurns(0, Math.min(COMPARED, attempt.data?.turns ?? 0) - 1);
  }, [attempt.data, attempt.error, episode]);
  return null;
}

function SideHead({ side, loaded, first, against }: { side: Side; loaded: Loaded | undefined; first: boolean; against?: Against }) {
  const attempt = loaded?.column?.attempt;
  const error = loaded?.error ?? loaded?.column?.episode.error;
  const retry = () => (loaded?.error ? loaded.retry() : loaded?.column?.episode.retry());
  return (
    <div class="side-head">
      <a href={link(['runs', side.run, 'attempts', side.attempt])}><b><Text>{side.label || (attempt?.run.name ?? side.run)}</Text></b></a>
      {attempt && <><Mark score={attempt.score} /><span class="soft">{score(attempt.score)}</span><StateBadge state={attempt.outcome ?? attempt.state} /></>}
      {first && <Badge>baseline</Badge>}
      {attempt && <span class="soft small">{counted(attempt.turns ?? 0, 'turn')} · {short((attempt.tokens?.input ?? 0) + (attempt.tokens?.output ?? 0))} tokens · {duration(attempt.wall_ms ?? attempt.model_ms)}</span>}
      {error && <span class="bad small" role="alert"><Text>{error.message}</Text> <button type="button" class="link" onClick={retry}>Try again</button></span>}
      {attempt?.answer ? <span class="mono small answer-line" title={attempt.answer}>answer: <Marked text={shortened(attempt.answer)} against={against} /></span> : <span class="small answer-line">{attempt ? 'no answer' : 'Loading…'}</span>}
    </div>
  );
}

const shortened = (answer: string): string => answer.slice(0, 120);

function Row({ positions, columns, sides }: { positions: number[]; columns: (Column | null)[]; sides: Side[] }) {
  const events = positions.map((at, i) => (at >= 0 ? (columns[i]?.episode.eventsOf(at) ?? null) : null));
  const parts = events.map((items) => items && partsOf(items));
  return (
    <div class="side-row">
      {positions.map((at, i) => {
        const column = columns[i];
        const turn = column?.episode.turns[at];
        const side = sides[i];
        if (!column || !side || at < 0) return <div key={i} class="side-cell empty" role="img" aria-label="no turn" />;
        if (!turn) return <div key={i} class="side-cell"><div class="ghost-turn"><span class="ghost" /><span class="ghost" /></div></div>;
        if (turn.omitted) return <div key={i} class="side-cell"><Omitted turns={turn.omitted} /></div>;
        const other = beside<Parts>(i, parts);
        const own = parts[i];
        const items = events[i];
        return (
          <div key={i} class={`side-cell ${i > 0 && other && own && !isSame(other.value, own) ? 'differs' : ''}`}>
            <div class="turn-head"><a class="turn-number" href={link(['runs', side.run, 'attempts', side.attempt], column.episode.addressOf(at))}>{count(turn.turn)}</a>{turn.dropped && <Badge tone="warn">undone</Badge>}<TurnBars turn={turn} episode={column.episode} /></div>
            {items ? <TurnEvents episode={column.episode} turn={turn} items={items} other={other && { parts: other.value, as: other.as }} /> : <div class="ghost-turn"><span class="ghost" /><span class="ghost" /></div>}
          </div>
        );
      })}
    </div>
  );
}
