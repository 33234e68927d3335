// A run of many attempts: a table that can be filtered and sorted, and a summary. Training runs show curves first.
import { useEffect, useRef, useState } from 'preact/hooks';
import { address } from '../lib/api';
import { useChanges, useData, usePaged, useSearch } from '../lib/data';
import { count, counted, dollars, duration, moment, percent, score, short, words } from '../lib/format';
import { useKeys } from '../lib/keys';
import { go, link, route, setQuery } from '../lib/router';
import { plain } from '../lib/visible';
import type { AttemptList, AttemptRow, Info, Result, Run, RunRow } from '../lib/types';
import { GridTable, type Column } from '../ui/grid';
import { Icon } from '../ui/icons';
import { Empty, Facts, Failed, Loading, Mark, Progress, Search, StateBadge, Tabs } from '../ui/parts';
import { Pick, PickedEpisodes } from '../ui/picked';
import { CommandLine, Text } from '../ui/text';
import type { ListHandle } from '../ui/virtual';
import { Values } from './details';
import { nameOf } from './episode';
import { CurvesPanel, GroupsPanel } from './training';

export function RunView({ info, run: id }: { info: Info; run: string }) {
  const base = address('runs', id);
  const loaded = useData<Run>(base);
  const [version, setVersion] = useState(0);
  const run = loaded.data;
  const [live, setLive] = useState<RunRow | null>(null);
  useChanges((changes) => {
    const mine = changes?.runs.find((r) => r.id === id);
    if (changes && !mine) return;
    setLive(mine ?? null);
    setVersion((n) => n + 1);
    // The rest is read where it is shown, and when it ends.
    if (!mine || mine.state !== 'running' || !run?.results?.length || route.value.query.get('tab') === 'summary') loaded.reload();
  });
  useEffect(() => {
    if (run) document.title = plain(run.name);
  }, [run]);
  if (loaded.error) return <div class="view"><Failed error={loaded.error} retry={loaded.reload} /></div>;
  if (!run) return <div class="view"><Loading what="Loading the run" /></div>;
  const shown: Run = live ? { ...run, ...live } : run;
  const training = run.kind === 'training';
  const tab = route.value.query.get('tab') ?? (training ? 'curves' : 'attempts');
  const here = ['runs', id];
  return (
    <div class="view">
      <Head run={shown} base={base} info={info} />
      <Tabs label="Parts of the run" current={tab} items={[
        { id: 'curves', name: 'Curves', href: link(here), hidden: !training },
        { id: 'groups', name: 'Groups', href: link(here, { tab: 'groups' }), hidden: !training },
        { id: 'attempts', name: training ? 'Episodes' : 'Attempts', href: training ? link(here, { tab: 'attempts' }) : link(here) },
        { id: 'summary', name: 'Summary', href: link(here, { tab: 'summary' }), hidden: !run.results?.length },
        { id: 'settings', name: 'Settings', href: link(here, { tab: 'settings' }) },
      ]} />
      {tab === 'summary' ? <Summary run={run} /> : tab === 'settings' ? <Settings run={run} /> : tab === 'curves' ? <div class="page"><CurvesPanel runs={[run]} version={version} /></div> : tab === 'groups' ? <GroupsPanel run={run.id} version={version} /> : <Attempts run={shown} base={base} version={version} />}
    </div>
  );
}

function Head({ run, base, info }: { run: Run; base: string; info: Info }) {
  const a = run.attempts;
  const planned = a?.planned ?? 0;
  return (
    <div class="head">
      <nav class="crumbs" aria-label="Where this is"><a href="#/runs">Runs</a><span aria-hidden="true">/</span><span><Text>{run.path || run.name}</Text></span></nav>
      <h1><Text>{run.name}</Text></h1>
      <StateBadge state={run.state} />
      {run.state === 'running' && planned > 0 && a && <span class="head-progress"><Progress done={a.done} total={planned} label="attempts done" /><span class="soft small">{count(a.done)} of {count(planned)}</span></span>}
      <span class="grow" />
      <span class="actions">
        {run.kind === 'benchmark' && <a class="button" href={link(['compare'], { runs: run.id })}><Icon name="columns" size={14} />Compare</a>}
        {run.kind === 'training' && <a class="button" href={link(['training'], { runs: run.id })}><Icon name="columns" size={14} />Compare curves</a>}
        {info.mode !== 'export' && (
          <details class="menu">
            <summary class="button" aria-label="Export"><Icon name="download" size={14} /><span class="wide-only">Export</span></summary>
            <div class="menu-list">
              <a href={`${base}/export/html`} download>One HTML file</a>
              <a href={`${base}/export/messages`} download>Messages (chat format)</a>
              <a href={`${base}/export/atif`} download>ATIF (JSON lines)</a>
            </div>
          </details>
        )}
      </span>
      <div class="head-facts">
        <Facts items={[
          run.model ? ['Model', <Text key="m">{run.model}</Text>] : null,
          run.score !== null && run.score !== undefined && ['Score', <b key="s">{percent(run.score)}</b>],
          a && (run.kind === 'benchmark' || run.format === 'inspect') && ['Solved · not · invalid', <span key="a"><span class="good">{count(a.passed)}</span> · {count(a.failed)} · <span class={a.invalid ? 'warn' : ''}>{count(a.invalid)}</span></span>],
          run.steps && ['Steps', run.steps.planned ? `${count(run.steps.done)} of ${count(run.steps.planned)}` : count(run.steps.done)],
          run.turns ? ['Turns', count(run.turns)] : null,
          run.tokens && ['Tokens in · out', `${short(run.tokens.input)} · ${short(run.tokens.output)}`],
          run.cost !== null && run.cost !== undefined && ['Cost', dollars(run.cost)],
          run.started ? ['Started', moment(run.started)] : null,
        ]} />
      </div>
      {[...new Set([run.problem, ...(run.problems ?? [])])].slice(0, 5).map((text) => text && <div key={text} class="notice head-facts"><p><Text>{text}</Text></p></div>)}
    </div>
  );
}

const FACETS: [string, string][] = [['task', 'Task'], ['mode', 'Mode'], ['result', 'Result'], ['outcome', 'Outcome'], ['set', 'Set'], ['step', 'Step']];

function Attempts({ run, base, version }: { run: Run; base: string; version: number }) {
  const { query } = route.value;
  const [q, setQ, settled] = useSearch();
  const sort = { by: query.get('sort') ?? 'task', order: (query.get('order') ?? 'asc') as 'asc' | 'desc' };
  const filters = Object.fromEntries(FACETS.map(([k]) => [k, query.get(k) ?? '']));
  const list = usePaged<AttemptRow, AttemptList>(`${base}/attempts`, { q: settled, ...filters, sort: sort.by, order: sort.order }, (p) => p.attempts, (p) => p.matched);
  useEffect(() => {
    if (version > 0) list.refresh();
  }, [version]);
  const [row, setRow] = useState(-1);
  const handle = useRef<ListHandle>(null);
  const move = (by: number) => {
    const next = Math.max(0, Math.min(list.length - 1, row + by));
    setRow(next);
    handle.current?.show(next, 'near');
  };
  const open = (a: AttemptRow) => link(['runs', run.id, 'attempts', a.id]);
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => {
      const chosen = list.at(row);
      if (chosen) go(open(chosen));
    },
    u: () => go('#/runs'),
  });
  const facets = list.page?.facets ?? {};
  const several = (key: string) => Object.keys(facets[key] ?? {}).length > 1;
  const training = run.kind === 'training';
  const graded = run.kind === 'benchmark' || run.format === 'inspect' || training;
  const columns: Column<AttemptRow>[] = [
    { id: 'pick', name: <span class="off-screen">Choose</span>, width: '1.25rem', cell: (a) => a.has_events && <Pick run={run.id} attempt={a.id} name={nameOf(a)} /> },
    ...(graded ? [{ id: 'score', name: 'Score', width: '3.6rem', sort: true, cell: (a: AttemptRow) => <span class="nowrap"><Mark score={a.score ?? a.reward} /></span> } satisfies Column<AttemptRow>] : []),
    ...(training ? [{ id: 'step', name: 'Step', width: '3.4rem', number: true, cell: (a: AttemptRow) => count(a.step) } satisfies Column<AttemptRow>] : []),
    { id: 'problem', name: graded ? 'Problem' : 'Task', width: 'minmax(9rem, 1.2fr)', sort: true, cell: (a) => <><a class="cover" href={open(a)}><Text>{nameOf(a)}</Text></a>{a.repeat ? <span class="soft"> · {a.repeat}</span> : null}</> },
    { id: 'title', name: 'Question', width: 'minmax(8rem, 2fr)', hide: 'medium', cell: (a) => (a.problem ? <span class="soft" title={a.title ?? ''}><Text>{(a.title ?? '').replace(/\s+/g, ' ')}</Text></span> : null) },
    ...(several('task') || several('mode') ? [{ id: 'task', name: 'Task', width: '8rem', sort: true, hide: 'wide', cell: (a: AttemptRow) => <span class="soft"><Text>{[a.task, a.mode].filter(Boolean).join(' · ')}</Text></span> } satisfies Column<AttemptRow>] : []),
    ...(graded ? [{ id: 'answer', name: 'Answer', width: 'minmax(5rem, 1fr)', hide: 'wide', cell: (a: AttemptRow) => <span class="mono small" title={`answer: ${a.answer ?? ''}\nexpected: ${a.expected ?? ''}`}><Text>{(a.answer ?? '').slice(0, 60)}</Text></span> } satisfies Column<AttemptRow>] : []),
    { id: 'outcome', name: 'Outcome', width: '7rem', hide: 'medium', cell: (a) => <StateBadge state={a.state === 'running' ? 'running' : (a.outcome ?? a.state)} /> },
    { id: 'turns', name: 'Turns', width: '3.8rem', sort: true, number: true, cell: (a) => count(a.turns) },
    { id: 'tokens', name: 'Tokens', width: '4.4rem', sort: true, number: true, hide: 'medium', cell: (a) => (a.tokens ? short(a.tokens.input + a.tokens.output) : '–') },
    { id: 'time', name: 'Time', width: '5rem', sort: true, number: true, hide: 'medium', cell: (a) => duration(a.wall_ms ?? (a.model_ms ?? 0) + (a.tool_ms ?? 0)) },
    { id: 'cost', name: 'Cost', width: '4.4rem', sort: true, number: true, hide: 'wide', cell: (a) => dollars(a.cost) },
  ];
  const page = list.page;
  return (
    <>
      <div class="toolbar table-tools">
        <Search value={q} onInput={setQ} label="Search problems and answers" />
        {FACETS.filter(([k]) => several(k) || filters[k]).map(([k, name]) => (
          <label key={k} class="select"><span class="off-screen">{name}</span>
            <select value={filters[k]} onChange={(e) => setQuery({ [k]: e.currentTarget.value || null })}>
              <option value="">{name}: all</option>
              {Object.entries(facets[k] ?? {}).map(([value, n]) => <option key={value} value={value}>{words(value)} ({count(n)})</option>)}
            </select>
          </label>
        ))}
        <span class="grow" />
        <PickedEpisodes />
        <span class="soft" role="status">{page ? (page.matched === page.total ? counted(page.total, 'attempt') : `${count(page.matched)} of ${count(page.total)}`) : ''}</span>
      </div>
      {list.error ? <Failed error={list.error} retry={list.refresh} /> : page?.total === 0 ? <Empty title="No attempts yet"><p>They appear here as they are made.</p></Empty> : page?.matched === 0 && !list.loading ? (
        <Empty title="No attempt matches"><p><button type="button" class="link" onClick={() => setQuery(Object.fromEntries([...FACETS.map(([k]) => [k, null]), ['q', null]]))}>Show all attempts</button></p></Empty>
      ) : (
        <GridTable columns={columns} length={list.length} at={list.at} need={list.need} label="Attempts" sort={sort} onSort={(by, order) => setQuery({ sort: by, order })} selected={row} handle={handle} />
      )}
    </>
  );
}

function Summary({ run }: { run: Run }) {
  const results = run.results ?? [];
  return (
    <div class="page">
      <section>
        <h2>Scores</h2>
        <div class="table-wrap">
          <table class="wide">
            <thead><tr><th scope="col">Task</th><th scope="col">Mode</th><th scope="col" class="n">Score</th><th scope="col" class="interval-head">95% interval<Scale range={[0, 1]} label={(v) => percent(v, 0)} /></th><th scope="col" class="n">Problems</th><th scope="col" class="n">Valid</th><th scope="col" class="n">Solved</th><th scope="col" class="n">pass@k</th><th scope="col" class="n">Turns</th><th scope="col" class="n">Cost</th></tr></thead>
            <tbody>{results.map((r) => <ResultRow key={`${r.task} ${r.mode}`} result={r} run={run.id} />)}</tbody>
          </table>
        </div>
      </section>
      <section>
        <h2>Outcomes</h2>
        <div class="table-wrap"><table>
          <tbody>{results.map((r) => <tr key={`${r.task} ${r.mode}`}><th scope="row"><Text>{r.task}</Text> <span class="soft">{r.mode}</span></th><td class="outcomes">{Object.entries(r.outcomes ?? {}).sort((a, b) => b[1] - a[1]).map(([name, n]) => <a key={name} href={link(['runs', run.id], { task: r.task, mode: r.mode, outcome: name })} class="outcome"><StateBadge state={name} /> {count(n)}</a>)}</td></tr>)}</tbody>
        </table></div>
      </section>
    </div>
  );
}

function ResultRow({ result: r, run }: { result: Result; run: string }) {
  return (
    <tr>
      <th scope="row"><a href={link(['runs', run], { task: r.task, mode: r.mode })}><Text>{r.task}</Text></a></th>
      <td>{r.mode}</td>
      <td class="n"><b>{percent(r.score)}</b>{r.se ? <span class="soft"> ±{(r.se * 100).toFixed(1)}</span> : null}</td>
      <td class="interval-cell"><Interval value={r.score} interval={r.interval} /></td>
      <td class="n">{count(r.problems)}</td>
      <td class="n">{count(r.valid)}{r.valid < r.attempts && <span class="warn"> of {count(r.attempts)}</span>}</td>
      <td class="n">{count(r.passed)}</td>
      <td class="n">{(r.pass_at ?? []).map((p) => `@${p.k} ${percent(p.value, 0)}`).join('  ')}</td>
      <td class="n">{score(r.turns_mean)}</td>
      <td class="n">{dollars(r.cost)}</td>
    </tr>
  );
}

/** A score on a line from 0 to 1, or a difference from -1 to 1, with its interval. */
export function Interval({ value, interval, range = [0, 1] }: { value: number | null | undefined; interval: [number, number] | null | undefined; range?: [number, number] }) {
  if (value === null || value === undefined) return null;
  const x = (v: number) => Math.max(0, Math.min(100, ((v - range[0]) / (range[1] - range[0])) * 100));
  const label = `${percent(value)}${interval ? `, 95% interval ${percent(interval[0])} to ${percent(interval[1])}` : ''}`;
  return (
    <span class="interval" role="img" aria-label={label} title={label}>
      {range[0] < 0 && <span class="interval-zero" style={{ left: `${x(0)}%` }} />}
      {interval && <span class="interval-range" style={{ left: `${x(interval[0])}%`, width: `${Math.max(0.5, x(interval[1]) - x(interval[0]))}%` }} />}
      <span class="interval-point" style={{ left: `${x(value)}%` }} />
    </span>
  );
}

/** The ends and the middle of the lines of a column of intervals. */
export function Scale({ range: [from, to], label }: { range: [number, number]; label: (value: number) => string }) {
  return <span class="interval-scale" aria-hidden="true">{[from, (from + to) / 2, to].map((v) => <span key={v}>{label(v)}</span>)}</span>;
}

function Settings({ run }: { run: Run }) {
  return (
    <div class="page narrow details">
      {run.commands && run.commands.length > 0 && <section><h2>Command lines</h2>{run.commands.map((c) => <div key={c.label} class="labelled"><span class="label">{c.label}</span><CommandLine text={c.command} /></div>)}</section>}
      <section><h2>Settings</h2><Values value={run.settings ?? {}} /></section>
      {run.directory && <section><h2>Directory</h2><p class="mono"><Text>{run.directory}</Text></p></section>}
      {run.program && <p class="soft small">Recorded by version <Text>{run.program}</Text>.</p>}
    </div>
  );
}

