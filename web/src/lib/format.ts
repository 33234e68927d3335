// Numbers, times and sizes as text. Digits are tabular in the page, so columns align.

const GROUPED = new Intl.NumberFormat('en-US');

/** 12345 as 12,345. */
export const count = (n: number | null | undefined): string => (n === null || n === undefined ? '–' : GROUPED.format(n));

/** 12345 as 12.3k: for narrow columns. */
export function short(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return '–';
  const abs = Math.abs(n);
  if (abs < 1000) return String(Math.round(n));
  if (abs < 1e6) return `${trim(n / 1e3)}k`;
  if (abs < 1e9) return `${trim(n / 1e6)}M`;
  return `${trim(n / 1e9)}G`;
}

/** A share as a percentage with one decimal. */
export const percent = (share: number | null | undefined, digits = 1): string =>
  share === null || share === undefined || !Number.isFinite(share) ? '–' : `${(share * 100).toFixed(digits)}%`;

/** A difference of shares in percentage points, with its sign. */
export function points(difference: number | null | undefined): string {
  if (difference === null || difference === undefined || !Number.isFinite(difference)) return '–';
  const value = (Math.abs(difference) * 100).toFixed(1);
  return difference > 0 ? `+${value}` : difference < 0 ? `−${value}` : value;
}

/** A score: 1 and 0 without decimals. */
export function score(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  return Number.isInteger(value) ? String(value) : value.toFixed(value < 0.1 && value > -0.1 ? 3 : 2);
}

/** Any measured number with about four significant digits. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const abs = Math.abs(value);
  if (abs >= 1e6 || abs < 1e-4) return value.toExponential(2);
  if (Number.isInteger(value)) return count(value);
  return String(Number(value.toPrecision(4)));
}

/** A p-value. */
export const probability = (p: number | null | undefined): string =>
  p === null || p === undefined ? '–' : p < 0.001 ? '<0.001' : p.toFixed(3);

/** Milliseconds as a duration: 840 ms, 3.2 s, 4:05, 1:02:03. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  const two = (n: number) => String(n).padStart(2, '0');
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${two(seconds % 60)} min`;
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)} h`;
}

/** Bytes with a binary unit. */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return '–';
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = n / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Dollars, with more digits for small amounts. */
export const dollars = (n: number | null | undefined): string =>
  n === null || n === undefined ? '–' : n === 0 ? '$0' : n < 0.01 ? `$${n.toFixed(4)}` : n < 100 ? `$${n.toFixed(2)}` : `$${count(Math.round(n))}`;

/** A moment, in the reader's time zone: 2026-01-02 03:04. */
export function moment(ms: number | null | undefined): string {
  if (!ms) return '–';
  const d = new Date(ms);
  if (Number.isNaN(d.getTime())) return '–';
  const two = (n: number) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`;
}

/** One noun with its number. */
export const counted = (n: number, noun: string, plural = `${noun}s`): string => `${count(n)} ${n === 1 ? noun : plural}`;

/** A name of the records as words: `max_turns` as "max turns". */
export const words = (name: string): string => name.replaceAll('_', ' ');

function trim(value: number): string {
  return value >= 100 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, '');
}
