// Runs compared problem by problem: who won where, and whether the difference says something.
import { useState } from 'preact/hooks';
import { useData, usePaged, useSearch } from '../lib/data';
import { compared, embedded, inOrder } from '../lib/embedded';
import { count, percent, points, probability } from '../lib/format';
import { link, route, setQuery } from '../lib/router';
import { plain } from '../lib/visible';
import type { Cell, Compare, Comparison, Info, ProblemList, ProblemRow, RunList, RunRow } from '../lib/types';
import { GridTable, type Column } from '../ui/grid';
import { Icon } from '../ui/icons';
import { Choice, Empty, Failed, Loading, Mark, Search } from '../ui/parts';
import { sideOf } from '../ui/picked';
import { Text } from '../ui/text';
import { Interval, Scale } from './run';

const ONLY: [string, string][] = [['all', 'All'], ['disagree', 'Disagreements'], ['gained', 'Gained'], ['lost', 'Lost'], ['both', 'Both solve'], ['neither', 'Neither']];

export function CompareView({ info }: { info: Info }) {
  const named = (route.value.query.get('runs') ?? '').split(',').filter(Boolean);
  const runs = embedded ? inOrder(named) : named;
  return runs.length < 2 ? <Picker chosen={runs} info={info} /> : <Comparing runs={runs} />;
}

/** Chooses runs to compare. */
function Picker({ chosen }: { chosen: string[]; info: Info }) {
  const list = useData<RunList>('page/api/runs', { kind: 'benchmark', limit: 1000 });
  const [picked, setPicked] = useState<string[]>(chosen);
  if (list.error) return <Failed error={list.error} retry={list.reload} />;
  if (!list.data) return <Loading />;
  const known = embedded && compared();
  const runs = list.data.runs.filter((r) => r.kind === 'benchmark' && (!known || known.includes(r.id)));
  if (runs.length < 2) return <Empty title="There are not two benchmark runs here"><p>A comparison pairs runs of <code>llm-in-sandbox benchmark</code> by problem: other models, prompts, sandboxes or limits.</p></Empty>;
  const toggle = (id: string) => setPicked(picked.includes(id) ? picked.filter((p) => p !== id) : [...picked, id]);
  return (
    <div class="view">
      <div class="page narrow">
        <div class="head"><h1>Compare runs</h1></div>
        <p class="soft">{known ? 'Choose two runs, or all of them: this file compares no others.' : 'Choose two or more runs.'} The first one is the baseline.</p>
        <ul class="picks">
          {runs.map((r: RunRow) => (
            <li key={r.id}>
              <label><input type="checkbox" checked={picked.includes(r.id)} onChange={() => toggle(r.id)} />
                <span class="grow"><b><Text>{r.name}</Text></b> <span class="soft"><Text>{[r.model, r.task].filter(Boolean).join(' · ')}</Text></span></span>
                {picked[0] === r.id && <span class="badge">baseline</span>}
                <span class="n">{percent(r.score)}</span>
              </label>
            </li>
          ))}
        </ul>
        <a class={`button primary ${picked.length < 2 ? 'disabled' : ''}`} aria-disabled={picked.length < 2} href={picked.length < 2 ? undefined : link(['compare'], { runs: picked.join(',') })}>Compare {picked.length > 1 ? `${picked.length} runs` : ''}</a>
      </div>
    </div>
  );
}

function Comparing({ runs }: { runs: string[] }) {
  const { query } = route.value;
  const ids = runs.join(',');
  const compare = useData<Compare>('page/api/compare', { runs: ids });
  const [q, setQ, settled] = useSearch();
  const only = query.get('only') ?? 'all';
  const other = Math.min(runs.length - 1, Math.max(1, Number(query.get('other') ?? 1)));
  const task = query.get('task') ?? '';
  const list = usePaged<ProblemRow, ProblemList>('page/api/compare/problems', { runs: ids, only, other: runs.length > 2 ? other : undefined, q: settled, task }, (p) => p.problems, (p) => p.matched);
  if (compare.error) return <div class="view"><Failed error={compare.error} retry={compare.reload} /></div>;
  if (!compare.data) return <div class="view"><Loading what="Comparing" /></div>;
  const data = compare.data;
  const labels = data.runs.map((r) => r.label || r.name);
  const columns: Column<ProblemRow>[] = [
    { id: 'problem', name: 'Problem', width: 'minmax(7rem, 0.6fr)', cell: (p) => <><b class="medium" title={plain(p.problem)}><Text>{p.problem}</Text></b>{data.tasks.length > 1 && <span class="soft"> · <Text>{p.task}</Text></span>}<span class="only-narrow small"><br /><SideLink problem={p} data={data} /></span></> },
    { id: 'title', name: 'Question', width: 'minmax(8rem, 2fr)', hide: 'medium', cell: (p) => <span class="soft" title={plain(p.title)}><Text>{(p.title ?? '').replace(/\s+/g, ' ')}</Text></span> },
    ...labels.map((label, i): Column<ProblemRow> => ({ id: `run-${i}`, name: <span title={label}><Text>{label}</Text></span>, width: runs.length > 3 ? '5.5rem' : 'minmax(2.2rem, 10rem)', cell: (p) => <CellView cell={p.cells[i]} run={data.runs[i]?.id ?? ''} /> })),
    { id: 'side', name: <span class="off-screen">Side by side</span>, width: '7rem', number: true, hide: 'medium', cell: (p) => <SideLink problem={p} data={data} /> },
  ];
  const page = list.page;
  return (
    <div class="view compare">
      <div class="head">
        <nav class="crumbs" aria-label="Where this is"><a href="#/compare">Compare</a></nav>
        <h1><Text>{labels.join(' · ')}</Text></h1>
      </div>
      <details class="compare-top" open={innerWidth > 768}>
        <summary>Statistics</summary>
        <Statistics data={data} labels={labels} />
      </details>
      <div class="toolbar table-tools">
        <Search value={q} onInput={setQ} label="Search problems" />
        {runs.length > 2 && <label class="select"><span class="off-screen">Compared run</span><select value={String(other)} onChange={(e) => setQuery({ other: e.currentTarget.value })}>{labels.map((l, i) => i > 0 && <option key={i} value={i}>{labels[0]} → {l}</option>)}</select></label>}
        {data.tasks.length > 1 && <label class="select"><span class="off-screen">Task</span><select value={task} onChange={(e) => setQuery({ task: e.currentTarget.value || null })}><option value="">Task: all</option>{data.tasks.map((t) => <option key={t} value={t}>{t}</option>)}</select></label>}
        <Choice label="Which problems" value={only} onChange={(v) => setQuery({ only: v === 'all' ? null : v })} options={ONLY.map(([value, name]) => ({ value, name }))} />
        <span class="grow" />
        <span class="soft" role="status">{page ? `${count(page.matched)} of ${count(page.total)} problems` : ''}</span>
      </div>
      {list.error ? <Failed error={list.error} retry={list.refresh} /> : page?.matched === 0 && !list.loading ? <Empty title="No problem matches"><p>{only === 'all' ? 'The runs share no problems.' : <button type="button" class="link" onClick={() => setQuery({ only: null })}>Show all problems</button>}</p></Empty> : (
        <GridTable columns={columns} length={list.length} at={list.at} need={list.need} label="Problems" />
      )}
    </div>
  );
}

function CellView({ cell, run }: { cell: Cell | null | undefined; run: string }) {
  if (!cell) return <span class="soft small">not attempted</span>;
  const first = cell.attempts[0];
  const several = cell.valid > 1 ? <span class="soft small"> {cell.passed}/{cell.valid}</span> : null;
  const inside = <><Mark score={cell.score} />{several}{first?.answer && <span class="mono small cell-answer" title={plain(first.answer)}><Text>{first.answer.slice(0, 40)}</Text></span>}</>;
  return first ? <a class="cell-link" href={link(['runs', run, 'attempts', first.id])}>{inside}</a> : inside;
}

function SideLink({ problem, data }: { problem: ProblemRow; data: Compare }) {
  const chosen = problem.cells.flatMap((c, i) => {
    // The attempt that shows the majority of a cell, so that the columns tell why the runs differ.
    const wanted = c && 2 * c.passed > c.valid ? 1 : 0;
    const attempt = c?.attempts.find((a) => (a.score ?? 0) >= 1 === (wanted === 1)) ?? c?.attempts[0];
    const run = data.runs[i];
    return attempt && run ? [sideOf(run.id, attempt.id, run.label || run.name)] : [];
  });
  if (chosen.length < 2) return null;
  return <a href={link(['side'], { e: chosen })} class="nowrap"><Icon name="columns" size={14} /> Side by side</a>;
}

function Statistics({ data, labels }: { data: Compare; labels: string[] }) {
  const { differing, same } = data.settings;
  const range = rangeOf(data.comparisons);
  return (
    <div class="statistics">
      <div class="table-wrap">
        <table class="wide">
          <thead><tr><th scope="col">Compared with <Text>{labels[data.baseline] ?? ''}</Text></th><th scope="col">Task</th><th scope="col" class="n">Baseline</th><th scope="col" class="n">Other</th><th scope="col" class="n" title="in percentage points">Difference</th><th scope="col" class="interval-head">95% interval (bootstrap)<Scale range={range} label={(v) => (v === 0 ? '0' : points(v).replace('.0', ''))} /></th><th scope="col" class="n" title="Holm-corrected">p (Holm)</th><th scope="col">Test</th><th scope="col" class="n">Gained</th><th scope="col" class="n">Lost</th><th scope="col" class="n" title="minimum detectable effect">MDE</th><th scope="col" class="n">Pairs</th></tr></thead>
          <tbody>{data.comparisons.map((c, i) => <ComparisonRow key={i} comparison={c} labels={labels} range={range} />)}</tbody>
        </table>
      </div>
      {differing.length > 0 && (
        <div class="table-wrap"><table>
          <thead><tr><th scope="col">Setting that differs</th>{labels.map((l, i) => <th key={i} scope="col"><Text>{l}</Text></th>)}</tr></thead>
          <tbody>{differing.map((s) => <tr key={s.name}><th scope="row" class="mono"><Text>{s.name}</Text></th>{s.values.map((v, i) => <td key={i} class="mono small"><Text>{v ?? '–'}</Text></td>)}</tr>)}</tbody>
        </table></div>
      )}
      {same.length > 0 && <details class="same"><summary>{count(same.length)} equal settings</summary><p class="mono small"><Text>{same.map(([k, v]) => `${k} ${v}`).join('   ')}</Text></p></details>}
      {data.notes.map((n, i) => <p key={i} class="soft small"><Text>{n}</Text></p>)}
    </div>
  );
}

/** The scale of all intervals: from the same distance below zero as above. */
function rangeOf(comparisons: Comparison[]): [number, number] {
  const ends = comparisons.flatMap(({ difference: d }) => (d ? [d.difference, ...(d.bootstrap ?? d.normal ?? [])] : []));
  const most = Math.max(0, ...ends.map(Math.abs));
  const end = [0.05, 0.1, 0.2, 0.3, 0.5].find((step) => most <= step) ?? 1;
  return [-end, end];
}

function ComparisonRow({ comparison: c, labels, range }: { comparison: Comparison; labels: string[]; range: [number, number] }) {
  const d = c.difference;
  const sure = c.p_holm !== null && c.p_holm !== undefined && c.p_holm < 0.05;
  const modes = c.baseline.mode === c.other.mode ? c.other.mode : `${c.baseline.mode} → ${c.other.mode}`;
  return (
    <tr>
      <th scope="row"><Text>{labels[c.other.run] ?? ''}</Text> <span class="soft">{modes}</span></th>
      <td>{c.task ? <Text>{c.task}</Text> : <em>average</em>}</td>
      <td class="n">{percent(c.baseline_score)}</td>
      <td class="n">{percent(c.other_score)}</td>
      <td class={`n ${sure && d ? (d.difference > 0 ? 'good' : 'bad') : ''}`}><b>{points(d?.difference)}{d ? ' pp' : ''}</b></td>
      <td class="interval-cell"><Interval value={d?.difference} interval={d?.bootstrap ?? d?.normal} range={range} /></td>
      <td class="n">{probability(c.p_holm)}</td>
      <td>{d?.test?.replaceAll('_', ' ') ?? ''}</td>
      <td class="n good">{d ? count(d.better) : '–'}</td>
      <td class="n bad">{d ? count(d.worse) : '–'}</td>
      <td class="n">{d?.detectable ? `${points(d.detectable).replace('+', '')} pp` : '–'}</td>
      <td class="n" title={`left out: ${c.left_out.only_baseline} only baseline, ${c.left_out.only_other} only other, ${c.left_out.different} different, ${c.left_out.invalid} invalid`}>{count(d?.problems ?? 0)}</td>
    </tr>
  );
}

