// Training: curves of several runs, and the episodes of a step in their groups with rewards side by side.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { address, get } from '../lib/api';
import { useChanges, useData, usePaged } from '../lib/data';
import { counted, percent, score, short } from '../lib/format';
import { link, route, setQuery } from '../lib/router';
import type { Group, GroupList, Metrics, RunList, RunRow, StepList, StepRow } from '../lib/types';
import { Chart, type Curve } from '../ui/chart';
import { Choice, Empty, Failed, Loading, Mark, Search, StateBadge } from '../ui/parts';
import { sideOf } from '../ui/picked';
import { Text } from '../ui/text';
import { VirtualList } from '../ui/virtual';

export function TrainingView() {
  const list = useData<RunList>('page/api/runs', { kind: 'training', limit: 1000 });
  const named = route.value.query.get('runs')?.split(',');
  const runs = list.data?.runs.filter((r) => r.kind === 'training') ?? [];
  const picked = named ? runs.filter((r) => named.includes(r.id)) : runs.slice(0, 4);
  const colors = useColors(picked.map((r) => r.id));
  const [version, setVersion] = useState(0);
  useChanges((changes) => {
    const changed = changes?.runs.filter((r) => r.kind === 'training');
    if (changed && changed.length === 0 && !changes?.removed.some((id) => runs.some((r) => r.id === id))) return;
    setVersion((n) => n + 1);
    if (!changed?.every((it) => runs.some((r) => r.id === it.id)) || changes?.removed.length) list.reload();
  });
  if (list.error) return <Failed error={list.error} retry={list.reload} />;
  if (!list.data) return <Loading />;
  if (runs.length === 0) return <Empty title="No training runs are recorded here"><p>Runs of <code>llm-in-sandbox train</code> appear with their curves, groups and sample episodes.</p></Empty>;
  const toggle = (id: string) => {
    const ids = picked.map((r) => r.id);
    // A run has no such name: without the option, some are chosen.
    setQuery({ runs: (ids.includes(id) ? ids.filter((i) => i !== id) : [...ids, id]).join(',') || '-' });
  };
  return (
    <div class="view">
      <div class="page">
        <div class="head"><h1>Training</h1><span class="soft">{counted(runs.length, 'run')}</span></div>
        <div class="run-chips" role="group" aria-label="Runs">
          {runs.map((r) => {
            const color = colors.get(r.id);
            return <button key={r.id} type="button" class="chip" aria-pressed={color !== undefined} onClick={() => toggle(r.id)}><span class={`swatch ${color !== undefined ? `swatch-${color % 8}` : ''}`} aria-hidden="true" /><Text>{r.name}</Text></button>;
          })}
        </div>
        <CurvesPanel runs={picked} version={version} colors={colors} />
      </div>
    </div>
  );
}

/** A color for each run: the first one that is free, and the same as long as the run is shown. */
function useColors(ids: string[]): Map<string, number> {
  const colors = useRef(new Map<string, number>()).current;
  for (const id of [...colors.keys()]) if (!ids.includes(id)) colors.delete(id);
  for (const id of ids) {
    if (colors.has(id)) continue;
    const used = [...colors.values()];
    let free = 0;
    while (used.includes(free)) free++;
    colors.set(id, free);
  }
  return colors;
}

type Loaded = { run: RunRow; metrics: Metrics };

/** Shares of the mean before in the mean of a step. */
const SMOOTHING = [{ value: '0', name: 'Raw' }, { value: '0.6', name: 'Smooth' }, { value: '0.9', name: 'Smoother' }];

/** Curves of runs, one chart for each metric; read again with each `version`, while runs go on. */
export function CurvesPanel({ runs, version = 0, colors }: { runs: Pick<RunRow, 'id' | 'name'>[]; version?: number; colors?: Map<string, number> }) {
  const [loaded, setLoaded] = useState<Record<string, Metrics | Error>>({});
  const { query } = route.value;
  const q = query.get('metric') ?? '';
  const smooth = SMOOTHING.find(({ value }) => value === query.get('smooth'))?.value ?? '0';
  const ids = runs.map((r) => r.id).join(',');
  const read = useRef(new Map<string, number>());
  useEffect(() => {
    for (const run of runs) {
      if (read.current.get(run.id) === version) continue;
      read.current.set(run.id, version);
      Promise.resolve().then(() => get<Metrics>(`${address('runs', run.id)}/metrics`)).then(
        (m) => setLoaded((old) => ({ ...old, [run.id]: m })),
        // Curves that are here stay: the next change reads them again.
        (e: Error) => setLoaded((old) => ({ ...old, [run.id]: old[run.id] ?? e })),
      );
    }
  }, [ids, version]);
  const ready = runs.flatMap((run): Loaded[] => {
    const metrics = loaded[run.id];
    return metrics && !(metrics instanceof Error) ? [{ run: run as RunRow, metrics }] : [];
  });
  const errors = runs.map((r) => loaded[r.id]).filter((m) => m instanceof Error);
  const sections = useMemo(() => sectionsOf(ready, (id) => colors?.get(id) ?? 0, q), [ids, loaded, q]);
  if (errors[0] && ready.length === 0) return <Failed error={errors[0]} />;
  if (ready.length === 0) return runs.length === 0 ? <Empty title="No run is chosen"><p>Choose one above.</p></Empty> : <Loading what="Loading the curves" />;
  const empty = sections.every(([, charts]) => charts.length === 0);
  return (
    <>
      <div class="toolbar">
        <Search value={q} onInput={(metric) => setQuery({ metric })} label="Search metrics" />
        <Choice label="Smoothing" value={smooth} onChange={(value) => setQuery({ smooth: value === '0' ? null : value })} options={SMOOTHING} />
        <span class="soft small">Drag across a chart to zoom, double-click to see all.</span>
      </div>
      {empty && <Empty title={q ? 'No metric has this name' : 'No metrics are recorded yet'} />}
      {sections.map(([name, charts]) => charts.length > 0 && (
        <section key={name} class="charts-section">
          <div class="section-head">
            <h2>{name}</h2>
            {runs.length > 1 && ready.map(({ run }) => <span key={run.id} class="legend soft small"><span class={`swatch swatch-${(colors?.get(run.id) ?? 0) % 8}`} aria-hidden="true" /><Text>{run.name}</Text></span>)}
          </div>
          <div class="charts">{charts.map((c) => <Chart key={c.title} title={c.title} axis={c.axis} curves={c.curves} smooth={Number(smooth)} sync="training" />)}</div>
        </section>
      ))}
      {ready.some((l) => l.metrics.bad_lines > 0) && <p class="warn small">Some lines of the metrics could not be read.</p>}
    </>
  );
}

type Described = { title: string; axis: string; curves: Curve[] };

function sectionsOf(ready: Loaded[], colorOf: (run: string) => number, q: string): [string, Described[]][] {
  const sections = new Map<string, Map<string, Described>>();
  const needle = q.trim().toLowerCase();
  for (const { run, metrics } of ready) {
    for (const metric of metrics.metrics) {
      if (!metric.values.some((v) => typeof v === 'number')) continue;
      const title = metric.title || metric.name;
      if (needle && !`${title} ${metric.name} ${metric.section}`.toLowerCase().includes(needle)) continue;
      const section = sections.get(metric.section || 'Other') ?? new Map<string, Described>();
      sections.set(metric.section || 'Other', section);
      const chart = section.get(title) ?? { title, axis: metric.axis ?? '', curves: [] };
      section.set(title, chart);
      chart.curves.push({ name: run.name, steps: metrics.steps, values: metric.values, color: colorOf(run.id) });
    }
  }
  return [...sections].map(([name, charts]) => [name, [...charts.values()]]);
}

/** The steps of a run, and the groups of one of them. */
export function GroupsPanel({ run, version = 0 }: { run: string; version?: number }) {
  const base = address('runs', run);
  const { query } = route.value;
  const steps = usePaged<StepRow, StepList & { offset?: number }>(`${base}/steps`, {}, (p) => p.steps, (p) => p.total);
  useEffect(() => {
    if (version > 0) steps.refresh();
  }, [version]);
  const first = steps.at(0);
  const step = Number(query.get('step') ?? first?.step ?? Number.NaN);
  const set = query.get('set') ?? first?.set ?? 'train';
  if (steps.error) return <Failed error={steps.error} retry={steps.refresh} />;
  if (steps.loading) return <Loading what="Loading the steps" />;
  if (steps.length === 0) return <Empty title="No episodes were kept"><p>This run has metrics, but no samples of its episodes.</p></Empty>;
  return (
    <div class="groups">
      <div class="outline steps-list" style={{ '--digits': String(steps.at(steps.length - 1)?.step ?? 100).length }}>
        <VirtualList length={steps.length} estimate={34} label="Steps" onRange={steps.need}
          row={(i) => {
            const row = steps.at(i);
            if (!row) return <div class="outline-row"><span class="ghost" /></div>;
            const current = row.step === step && row.set === set;
            return (
              <button type="button" class={`outline-row step-row ${current ? 'current' : ''}`} aria-current={current ? 'true' : undefined} onClick={() => setQuery({ tab: 'groups', step: row.step, set: row.set })}>
                <span class="n">{row.step}</span><span class="grow"><Text>{row.set}</Text></span><span class="soft small" title="groups whose rewards differ">{row.spread ?? '–'}/{row.groups}</span><span class="n">{percent(row.score_mean, 0)}</span>
              </button>
            );
          }} />
      </div>
      <Groups run={run} step={step} set={set} version={version} />
    </div>
  );
}

function Groups({ run, step, set, version }: { run: string; step: number; set: string; version: number }) {
  const groups = usePaged<Group, GroupList & { offset?: number }>(`${address('runs', run)}/groups`, { step, set }, (p) => p.groups, (p) => p.total, 50);
  useEffect(() => {
    if (version > 0) groups.refresh();
  }, [version]);
  if (groups.error) return <Failed error={groups.error} retry={groups.refresh} />;
  if (groups.loading) return <Loading />;
  if (groups.length === 0) return <Empty title="No groups at this step" />;
  return (
    <VirtualList class="group-list" length={groups.length} estimate={110} label={`Groups of step ${step}`} onRange={groups.need}
      row={(i) => {
        const group = groups.at(i);
        return group ? <GroupCard group={group} run={run} /> : <div class="group"><span class="ghost" /></div>;
      }} />
  );
}

function GroupCard({ group, run }: { group: Group; run: string }) {
  const rewards = group.members.map((m) => m.score).filter((s): s is number => typeof s === 'number');
  const spread = new Set(rewards).size > 1;
  return (
    <section class="group">
      <div class="group-head"><b><Text>{group.problem ?? `group ${group.group}`}</Text></b><span class="soft group-title"><Text>{(group.title ?? '').replace(/\s+/g, ' ')}</Text></span><span class="grow" /><span class="nowrap">mean {score(group.mean)}</span>{!spread && <span class="soft small">no signal: all alike</span>}</div>
      <div class="members">
        {group.members.map((m) => {
          const inside = <><Mark score={m.score} /><span class="nowrap">{score(m.score)}</span><StateBadge state={m.end} /><span class="soft small nowrap">{counted(m.turns ?? 0, 'turn')} · {short(m.tokens)} tokens</span></>;
          return m.attempt ? <a key={m.member} class="member" href={link(['runs', run, 'attempts', m.attempt])}>{inside}</a> : <span key={m.member} class="member">{inside}</span>;
        })}
      </div>
      {group.members.filter((m) => m.attempt).length > 1 && <SideLink run={run} group={group} />}
    </section>
  );
}

/** The best and the worst member side by side. */
function SideLink({ run, group }: { run: string; group: Group }) {
  const sorted = group.members.filter((m) => m.attempt).sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
  const ends = [sorted[0], sorted.at(-1)].map((m) => sideOf(run, m?.attempt ?? ''));
  return <a class="small" href={link(['side'], { e: ends })}>Best and worst side by side</a>;
}
