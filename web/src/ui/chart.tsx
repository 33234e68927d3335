// Curves of one metric for several runs.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { number } from '../lib/format';
import { shown } from '../lib/theme';

/** A curve: values by step, null where there is none. */
export type Curve = { name: string; steps: number[]; values: (number | null | undefined)[]; color: number };

type Props = { title: string; axis: string; curves: Curve[]; smooth: number; height?: number; sync?: string };

/** The chart. Without smoothing the values themselves are drawn, else they are drawn faintly behind the mean. */
export function Chart({ title, axis, curves, smooth, height = 215, sync }: Props) {
  const ref = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = shown.value;
  const shape = curves.map((c) => `${c.name} ${c.color}`).join('\n');
  const latest = useRef({ curves, smooth });
  latest.current = { curves, smooth };
  useEffect(() => {
    const el = ref.current;
    if (!el) return;
    const made = make(el, { title, axis, height, sync }, latest.current);
    plot.current = made;
    const resize = new ResizeObserver(() => el.clientWidth > 0 && made.setSize({ width: el.clientWidth, height }));
    resize.observe(el);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [title, axis, shape, smooth > 0, dark, height]);
  useEffect(() => {
    const drawn = plot.current;
    if (!drawn) return;
    // What the reader zoomed into stays while values are added.
    const { min, max } = drawn.scales.x ?? {};
    const all = drawn.data[0];
    const zoomed = min != null && max != null && (min > (all[0] ?? 0) || max < (all.at(-1) ?? 0));
    drawn.setData(dataOf(curves, smooth), !zoomed);
    if (zoomed) drawn.setScale('x', { min, max });
  }, [curves, smooth]);
  const last = curves.map((c) => `${c.name}: ${number(c.values.findLast((v) => v !== null && v !== undefined))}`).join(', ');
  return <div ref={ref} class="chart" role="img" aria-label={`${title}. Last values: ${last}`} style={{ minHeight: `${height}px` }} />;
}

/** The values of the curves on common steps: of each its mean, before it the raw values where they differ. */
function dataOf(curves: Curve[], smooth: number): uPlot.AlignedData {
  const steps = [...new Set(curves.flatMap((c) => c.steps))].sort((a, b) => a - b);
  const at = new Map(steps.map((s, i) => [s, i]));
  const data: (number | null)[][] = [steps];
  for (const curve of curves) {
    const values = Array<number | null>(steps.length).fill(null);
    curve.steps.forEach((s, i) => {
      const value = curve.values[i];
      values[at.get(s) ?? 0] = typeof value === 'number' && Number.isFinite(value) ? value : null;
    });
    if (smooth > 0) data.push(values);
    data.push(smooth > 0 ? smoothed(values, smooth) : values);
  }
  return data as uPlot.AlignedData;
}

type Look = { title: string; axis: string; height: number; sync?: string };

/** Values of so few steps are drawn as points too. */
const FEW = 40;

function make(el: HTMLElement, { title, axis: label, height, sync }: Look, { curves, smooth }: { curves: Curve[]; smooth: number }): uPlot {
  const series: uPlot.Series[] = [{ label: 'step' }];
  for (const curve of curves) {
    const color = colorOf(el, `--c${curve.color % 8}`);
    if (smooth > 0) series.push({ stroke: `${withAlpha(color, 0.28)}`, width: 1, points: { show: false }, spanGaps: true, label: `${curve.name} (raw)` });
    const show = (u: uPlot, at: number) => smooth === 0 && [...(u.data[at] ?? [])].filter((v) => v !== null).length < FEW;
    series.push({ stroke: color, width: 1.75, points: { show, size: 5, fill: color }, spanGaps: true, label: curve.name, value: (_, v) => number(v) });
  }
  const soft = colorOf(el, '--soft');
  const font = '11px system-ui, sans-serif';
  const grid = { stroke: colorOf(el, '--line-soft'), width: 1 };
  const axis: uPlot.Axis = { stroke: soft, grid, ticks: { show: false }, font, labelFont: font, labelSize: 16, labelGap: 0 };
  return new uPlot(
    {
      title, width: Math.max(200, el.clientWidth), height, series, legend: { show: false }, padding: [8, 12, 0, 0],
      scales: { x: { time: false } },
      cursor: { sync: sync ? { key: sync } : undefined, drag: { x: true, y: false }, points: { size: 6 } },
      axes: [{ ...axis, size: 24, label: 'step' }, { ...axis, size: 46, label, values: (_, list) => list.map((v) => number(v)) }],
      hooks: { setCursor: [(u) => tooltip(u, curves, smooth)] },
    },
    dataOf(curves, smooth),
    el,
  );
}

/** The values under the cursor, as text beside it. */
function tooltip(u: uPlot, curves: Curve[], smooth: number): void {
  let tip = u.over.querySelector<HTMLDivElement>('.chart-tip');
  if (!tip) {
    tip = document.createElement('div');
    tip.className = 'chart-tip';
    u.over.append(tip);
  }
  const index = u.cursor.idx;
  if (index === null || index === undefined || (u.cursor.left ?? -1) < 0) {
    tip.hidden = true;
    return;
  }
  const step = u.data[0][index];
  const lines = curves.map((c, i) => `${c.name}  ${number(u.data[smooth > 0 ? (i + 1) * 2 : i + 1]?.[index])}`);
  tip.textContent = [`step ${step}`, ...lines].join('\n');
  tip.hidden = false;
  const left = u.cursor.left ?? 0;
  tip.classList.toggle('left', left > u.over.clientWidth / 2);
  tip.style.left = `${left}px`;
}

function smoothed(values: (number | null)[], factor: number): (number | null)[] {
  let mean = 0;
  let weight = 0;
  return values.map((v) => {
    if (v === null) return null;
    mean = mean * factor + v * (1 - factor);
    weight = weight * factor + (1 - factor);
    return mean / weight;
  });
}

/** A colour of the style sheet as the canvas understands it. */
function colorOf(el: HTMLElement, name: string): string {
  const probe = document.createElement('span');
  probe.className = `probe probe${name}`;
  el.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

const withAlpha = (color: string, alpha: number): string => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
