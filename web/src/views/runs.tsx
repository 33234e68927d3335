// All runs: a table that can be searched and filtered, and that follows what runs.
import { useRef, useState } from 'preact/hooks';
import { useChanges, usePaged, useSearch } from '../lib/data';
import { count, counted, dollars, moment, percent, short } from '../lib/format';
import { useKeys } from '../lib/keys';
import { go, link, route, setQuery } from '../lib/router';
import { plain } from '../lib/visible';
import type { Info, RunList, RunRow } from '../lib/types';
import { GridTable, type Column } from '../ui/grid';
import { Bar, Choice, Empty, Failed, Progress, Search, StateBadge } from '../ui/parts';
import { Pick, PickedEpisodes } from '../ui/picked';
import { CommandLine, Text } from '../ui/text';
import type { ListHandle } from '../ui/virtual';

const KINDS: [string, string][] = [['benchmark', 'Benchmarks'], ['training', 'Training'], ['run', 'Runs'], ['episodes', 'Episodes'], ['file', 'Files']];
const KIND_NAME: Record<string, string> = { benchmark: 'benchmark', training: 'training', run: 'run', episodes: 'server', file: 'file' };

/** The address of a run; that of what holds one episode is the episode's. */
const runLink = (run: RunRow): string => link(run.attempt !== null && run.attempt !== undefined ? ['runs', run.id, 'attempts', run.attempt] : ['runs', run.id]);

export function RunsView({ info }: { info: Info }) {
  const { query } = route.value;
  const [q, setQ, settled] = useSearch();
  const kind = query.get('kind') ?? '';
  const sort = { by: query.get('sort') ?? 'started', order: (query.get('order') ?? 'desc') as 'asc' | 'desc' };
  const list = usePaged<RunRow, RunList>('page/api/runs', { q: settled, kind, sort: sort.by, order: sort.order }, (p) => p.runs, (p) => p.matched);
  const [changed, setChanged] = useState<Map<string, RunRow>>(new Map());
  const [picked, setPicked] = useState<Map<string, RunRow>>(new Map());
  const [row, setRow] = useState(-1);
  const handle = useRef<ListHandle>(null);

  useChanges((changes) => {
    if (changes) setChanged((old) => new Map([...old, ...changes.runs.map((r) => [r.id, r] as const)]));
    list.refresh();
  });
  const at = (i: number): RunRow | undefined => {
    const found = list.at(i);
    const newer = found && changed.get(found.id);
    return newer && (newer.updated ?? 0) >= (found.updated ?? 0) ? newer : found;
  };
  const move = (by: number) => {
    const next = Math.max(0, Math.min(list.length - 1, row + by));
    setRow(next);
    handle.current?.show(next, 'near');
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => {
      const chosen = at(row);
      if (chosen) go(runLink(chosen));
    },
  });

  const toggle = (run: RunRow) => {
    const next = new Map(picked);
    if (!next.delete(run.id)) next.set(run.id, run);
    setPicked(next);
  };
  // Columns that would be empty leave their room to names.
  const first = Array.from({ length: Math.min(list.length, 200) }, (_, i) => list.at(i));
  const known = (value: (run: RunRow) => unknown) => first.some((r) => r && (value(r) ?? false) !== false);
  const columns: Column<RunRow>[] = [
    { id: 'pick', name: <span class="off-screen">Choose</span>, width: '1.25rem', cell: (r) => (r.kind === 'benchmark' || r.kind === 'training' ? <input type="checkbox" checked={picked.has(r.id)} onChange={() => toggle(r)} aria-label={`Choose ${r.name} to compare`} /> : r.attempt !== null && r.attempt !== undefined && <Pick run={r.id} attempt={r.attempt} name={r.name} />) },
    { id: 'name', name: 'Name', width: 'minmax(10rem, 2.6fr)', sort: true, cell: (r) => <NameCell run={r} /> },
    { id: 'kind', name: 'Kind', width: '5.25rem', hide: 'wide', cell: (r) => <span class="soft">{r.kind === 'file' ? r.format : (KIND_NAME[r.kind] ?? r.kind)}</span> },
    { id: 'model', name: 'Model', width: 'minmax(6rem, 1.6fr)', sort: true, hide: 'medium', cell: (r) => (r.model ? <span title={plain(r.model)}><Text>{shortModel(r.model)}</Text></span> : <span class="soft">–</span>) },
    { id: 'task', name: 'Task', width: 'minmax(5rem, 1fr)', sort: true, hide: 'wide', cell: (r) => <TaskCell run={r} /> },
    { id: 'score', name: 'Score', width: '6.75rem', sort: true, number: true, cell: (r) => <ScoreCell run={r} /> },
    { id: 'state', name: <span class="pad">State</span>, width: known((r) => r.state === 'running') ? '12.5rem' : '11rem', hide: 'medium', cell: (r) => <StateCell run={r} /> },
    ...(known((r) => r.turns) ? [{ id: 'turns', name: 'Turns', width: '3.25rem', number: true, hide: 'wide', cell: (r) => short(r.turns) } satisfies Column<RunRow>] : []),
    ...(known((r) => r.tokens) ? [{ id: 'tokens', name: 'Tokens', width: '3.5rem', number: true, hide: 'wide', cell: (r) => (r.tokens ? short(r.tokens.input + r.tokens.output) : '–') } satisfies Column<RunRow>] : []),
    ...(known((r) => r.cost) ? [{ id: 'cost', name: 'Cost', width: '4rem', number: true, hide: 'wide', cell: (r) => dollars(r.cost) } satisfies Column<RunRow>] : []),
    { id: 'started', name: 'Started', width: '8.5rem', sort: true, number: true, hide: 'medium', cell: (r) => <span class="soft">{moment(r.started)}</span> },
  ];
  const page = list.page;
  const kinds = page?.kinds ?? {};
  const nothing = page && page.total === 0;
  return (
    <div class="view">
      <div class="head">
        <h1>Runs</h1>
        <span class="soft">{page ? (page.matched === page.total ? count(page.total) : `${count(page.matched)} of ${count(page.total)}`) : ''}{page?.truncated ? ', not all are shown' : ''}</span>
        {info.root && <span class="soft small root" title={info.root}><Text>{info.root}</Text></span>}
      </div>
      {!nothing && (
        <div class="toolbar">
          <Search value={q} onInput={setQ} label="Search runs, models, tasks" />
          <Choice label="Kind" value={kind} onChange={(k) => setQuery({ kind: k || null })} options={[{ value: '', name: 'All' }, ...KINDS.filter(([k]) => kinds[k]).map(([value, name]) => ({ value, name: <>{name} <span class="soft">{kinds[value]}</span></> }))]} />
          <span class="grow" />
          <PickedEpisodes />
          <Picked picked={picked} clear={() => setPicked(new Map())} />
        </div>
      )}
      {list.error ? <Failed error={list.error} retry={list.refresh} /> : nothing ? <Nothing info={info} /> : page && page.matched === 0 && !list.loading ? (
        <Empty title="No run matches"><p>No run has all of these words. <button type="button" class="link" onClick={() => setQuery({ kind: null, q: null })}>Show all runs</button></p></Empty>
      ) : (
        <GridTable columns={columns} length={list.length} at={at} need={list.need} label="Runs" sort={sort} onSort={(by, order) => setQuery({ sort: by, order })} selected={row} handle={handle} />
      )}
    </div>
  );
}

/** A model without the organization in front, which takes the room of what tells models apart. */
const shortModel = (model: string): string => model.slice(model.lastIndexOf('/') + 1) || model;

function Picked({ picked, clear }: { picked: Map<string, RunRow>; clear: () => void }) {
  const runs = [...picked.values()];
  if (runs.length === 0) return null;
  const training = runs.every((r) => r.kind === 'training');
  const same = training || runs.every((r) => r.kind === 'benchmark');
  const ids = runs.map((r) => r.id).join(',');
  return (
    <>
      <span class="soft">{counted(runs.length, 'run')} chosen</span>
      {runs.length > 1 && same && <a class="button primary" href={training ? link(['training'], { runs: ids }) : link(['compare'], { runs: ids })}>{training ? 'Compare curves' : 'Compare'}</a>}
      {!same && <span class="soft">choose runs of one kind</span>}
      <button type="button" class="button" onClick={clear}>Clear</button>
    </>
  );
}

function NameCell({ run }: { run: RunRow }) {
  return (
    <>
      <a class="cover" href={runLink(run)} title={run.path}><Text>{run.name}</Text></a>
      {run.problem && <span class="warn small" title={run.problem}> · readable in part</span>}
      <span class="only-narrow soft small"><br /><Text>{run.model ? shortModel(run.model) : (run.task ?? '')}</Text></span>
    </>
  );
}

function TaskCell({ run }: { run: RunRow }) {
  const tasks = run.tasks && run.tasks.length > 0 ? run.tasks : run.task ? [run.task] : [];
  const [first] = tasks;
  if (first === undefined) return <span class="soft">–</span>;
  return <span title={plain(tasks.join(', '))}><Text>{run.kind === 'training' ? (first.split('/').filter(Boolean).at(-1) ?? first) : first}</Text>{tasks.length > 1 && <span class="soft"> +{tasks.length - 1}</span>}</span>;
}

function ScoreCell({ run }: { run: RunRow }) {
  if (run.score === null || run.score === undefined) return <span class="soft">–</span>;
  const share = Math.max(0, Math.min(1, run.score));
  return <span class="score-cell"><Bar parts={[{ value: share, class: 'bar-score', title: 'score' }]} most={1} label={`score ${percent(run.score)}`} /><span>{percent(run.score)}</span></span>;
}

function StateCell({ run }: { run: RunRow }) {
  const done = run.steps?.done ?? run.attempts?.done ?? 0;
  const total = run.steps ? run.steps.planned : run.attempts?.planned;
  const unit = run.steps ? 'step' : 'attempt';
  return (
    <span class="state-cell pad">
      <StateBadge state={run.state} />
      {run.state === 'running' && total ? <><Progress done={done} total={total} label={`${done} of ${total}`} /><span class="soft small nowrap">{short(done)}/{short(total)}</span></> : total && total > 1 ? <span class="soft small" title={counted(total, unit)}>{done < total ? `${count(done)} of ${count(total)}` : counted(total, unit)}</span> : null}
    </span>
  );
}

function Nothing({ info }: { info: Info }) {
  return (
    <Empty title="Nothing has been recorded here yet">
      <p>The page shows runs, benchmarks, training runs and trajectories below <code>{info.root ?? ''}</code>, and follows new ones as they are written.</p>
      <CommandLine text="llm-in-sandbox run 'Which day of the week was 29 February 1704?'" />
    </Empty>
  );
}
