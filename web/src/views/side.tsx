// Two or more episodes side by side. Turns that do alike are on one row; words that differ from the first column are
// marked.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { address } from '../lib/api';
import { useData } from '../lib/data';
import { likeness } from '../lib/diff';
import { useEpisode, type Episode } from '../lib/episode';
import { count, duration, score, short } from '../lib/format';
import { link, route, setQuery } from '../lib/router';
import type { Attempt, EventItem, Message, Turn } from '../lib/types';
import { Badge, Choice, Empty, Mark, StateBadge } from '../ui/parts';
import { Text } from '../ui/text';
import { VirtualList } from '../ui/virtual';
import { nameOf } from './episode';
import { TurnBars, TurnEvents, turnTitle } from './turn';

type Side = { run: string; attempt: string; base: string };
type Loaded = { side: Side; attempt: Attempt; episode: Episode };

export function SideView() {
  const { query } = route.value;
  const key = query.getAll('e').join('\n');
  const sides = useMemo(() => key.split('\n').filter(Boolean).slice(0, 6).map(parse), [key]);
  const [loaded, setLoaded] = useState<Record<number, Loaded>>({});
  const by = (query.get('align') ?? 'likeness') as 'likeness' | 'number';
  const all = sides.map((_, i) => loaded[i]);
  const ready = all.every((l): l is Loaded => l !== undefined && l.episode.turns.length >= 0);
  const versions = all.map((l) => l?.episode.turns.length ?? 0).join(',');
  const rows = useMemo(() => (ready ? align(all.map((l) => l?.episode.turns ?? []), by) : []), [ready, versions, by]);
  if (sides.length < 2) return <Empty title="Nothing to put side by side"><p>Open a <a href="#/compare">comparison</a> and choose a problem.</p></Empty>;
  const style = { '--sides': sides.length };
  return (
    <div class="view side" style={style}>
      {sides.map((s, i) => <Loader key={s.base} side={s} onLoad={(l) => setLoaded((old) => ({ ...old, [i]: l }))} />)}
      <div class="head">
        <nav class="crumbs" aria-label="Where this is"><a href="#/compare" onClick={(e) => { if (history.length > 1) { e.preventDefault(); history.back(); } }}>Compare</a></nav>
        <h1><Text>{all[0] ? nameOf(all[0].attempt) : 'Side by side'}</Text></h1>
        <span class="grow" />
        <Choice label="Alignment" value={by} onChange={(v) => setQuery({ align: v === 'likeness' ? null : v })} options={[{ value: 'likeness', name: 'Align alike turns' }, { value: 'number', name: 'By number' }]} />
      </div>
      <div class="side-scroll">
        <div class="side-row side-heads">{sides.map((s, i) => <SideHead key={s.base} side={s} loaded={all[i]} first={i === 0} />)}</div>
        {ready && <VirtualList length={rows.length} estimate={240} label="Turns side by side" role="feed"
          row={(i) => <div class="side-row">{rows[i]?.map((index, column) => <SideCell key={column} loaded={all[column]} index={index} base={column > 0 ? commandAt(all[0], rows[i]?.[0] ?? -1) : undefined} />)}</div>} />}
      </div>
    </div>
  );
}

const parse = (text: string): Side => {
  const [run = '', attempt = ''] = text.split('/').map(decodeURIComponent);
  return { run, attempt, base: address('runs', run, 'attempts', attempt) };
};

/** Loads one column; it draws nothing. */
function Loader({ side, onLoad }: { side: Side; onLoad: (loaded: Loaded) => void }) {
  const attempt = useData<Attempt>(side.base);
  const episode = useEpisode(side.base, attempt.data);
  useEffect(() => {
    if (!attempt.data || !episode) return;
    onLoad({ side, attempt: attempt.data, episode });
    episode.needTurns(0, Math.min(4999, attempt.data.turns ?? 0));
  }, [attempt.data, episode]);
  return null;
}

function SideHead({ side, loaded, first }: { side: Side; loaded: Loaded | undefined; first: boolean }) {
  const attempt = loaded?.attempt;
  return (
    <div class="side-head">
      <a href={link(['runs', side.run, 'attempts', side.attempt])}><b><Text>{attempt?.run.name ?? side.run}</Text></b></a>
      {attempt && <><Mark score={attempt.score} /><span class="soft">{score(attempt.score)}</span><StateBadge state={attempt.outcome ?? attempt.state} /></>}
      {first && <Badge>baseline</Badge>}
      {attempt && <span class="soft small">{count(attempt.turns)} turns · {short((attempt.tokens?.input ?? 0) + (attempt.tokens?.output ?? 0))} tokens · {duration(attempt.wall_ms ?? attempt.model_ms)}</span>}
      {attempt?.answer && <span class="mono small answer-line" title={attempt.answer}>answer: <Text>{attempt.answer.slice(0, 120)}</Text></span>}
    </div>
  );
}

function SideCell({ loaded, index, base }: { loaded: Loaded | undefined; index: number; base?: string }) {
  const turn = index >= 0 ? loaded?.episode.turns[index] : undefined;
  if (!loaded || !turn) return <div class="side-cell empty" aria-label="no turn" />;
  const items = loaded.episode.eventsOf(index);
  const differs = base !== undefined && base !== '' && base !== commandOf(items);
  return (
    <div class={`side-cell ${differs ? 'differs' : ''}`}>
      <div class="turn-head"><a class="turn-number" href={link(['runs', loaded.side.run, 'attempts', loaded.side.attempt], { turn: turn.turn })}>{turn.turn}</a><TurnBars turn={turn} episode={loaded.episode} /></div>
      {items ? <TurnEvents episode={loaded.episode} turn={turn} items={items} against={base || undefined} /> : <div class="ghost-turn"><span class="ghost" /><span class="ghost" /></div>}
    </div>
  );
}

function commandAt(loaded: Loaded | undefined, index: number): string | undefined {
  if (!loaded || index < 0) return '';
  return commandOf(loaded.episode.eventsOf(index));
}

function commandOf(items: EventItem[] | null): string {
  const call = (items?.find((i) => i.event.kind === 'replied')?.event.message as Message | undefined)?.calls?.[0];
  return call && typeof call.arguments !== 'string' && typeof call.arguments.command === 'string' ? call.arguments.command : '';
}

/** Rows of turn indices, one per column, -1 where a column has none. Columns are joined one after the other. */
export function align(columns: (Turn | undefined)[][], by: 'likeness' | 'number'): number[][] {
  const first = columns[0] ?? [];
  let rows = first.map((_, i) => [i]);
  for (let c = 1; c < columns.length; c++) {
    const column = columns[c] ?? [];
    rows = by === 'number' || rows.length * column.length > 250_000 ? byNumber(rows, column.length, c) : byLikeness(rows, columns, c);
  }
  return rows;
}

function byNumber(rows: number[][], length: number, c: number): number[][] {
  const out: number[][] = [];
  for (let i = 0; i < Math.max(rows.length, length); i++) out.push([...(rows[i] ?? Array<number>(c).fill(-1)), i < length ? i : -1]);
  return out;
}

/** The alignment with the greatest sum of likeness, as for sequences of genes. */
function byLikeness(rows: number[][], columns: (Turn | undefined)[][], c: number): number[][] {
  const column = columns[c] ?? [];
  const title = (turn: Turn | undefined) => (turn ? `${turn.calls[0]?.name ?? ''} ${turnTitle(turn)}` : '');
  const left = rows.map((row) => row.map((index, k) => (index >= 0 ? title(columns[k]?.[index]) : '')).find((t) => t !== '') ?? '');
  const right = column.map(title);
  const width = right.length + 1;
  const best = new Float64Array((left.length + 1) * width);
  const gain = (i: number, j: number) => likeness(left[i] ?? '', right[j] ?? '') - 0.15;
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      best[i * width + j] = Math.max((best[(i + 1) * width + j + 1] ?? 0) + gain(i, j), best[(i + 1) * width + j] ?? 0, best[i * width + j + 1] ?? 0);
    }
  }
  const out: number[][] = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    const here = best[i * width + j] ?? 0;
    if (i < left.length && j < right.length && Math.abs(here - ((best[(i + 1) * width + j + 1] ?? 0) + gain(i, j))) < 1e-9) out.push([...(rows[i++] ?? []), j++]);
    else if (i < left.length && (j >= right.length || Math.abs(here - (best[(i + 1) * width + j] ?? 0)) < 1e-9)) out.push([...(rows[i++] ?? []), -1]);
    else out.push([...Array<number>(c).fill(-1), j++]);
  }
  return out;
}
