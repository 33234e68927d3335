// The answers inside a single-file export: `#page-data` maps addresses without query to complete answers. Queries are
// applied here as the server would.
import type { AttemptRow, EventItem, Group, ProblemRow, RunRow, StepRow, Turn, TurnPage } from './types';

export type Query = Record<string, string | number | null | undefined>;
type Answers = { v: number; start?: string; responses: Record<string, unknown> };

/** The answers in the document; null on a server. */
export const embedded: Answers | null = read();

/** An answer from the document. */
export function fromDocument(path: string, query: Query): unknown {
  if (path === 'page/api/compare') {
    const answer = lookup(`${path}?runs=${String(query.runs)}`);
    if (answer === undefined) throw new Error('this file compares two of its runs, or all of them');
    return answer;
  }
  const undone = query.event === undefined ? undefined : lookup(`${path}?event=${query.event}`);
  const answer = undone ?? lookup(path);
  if (answer === undefined) throw new Error('this is not part of the file');
  return apply(path, answer as Record<string, unknown>, query);
}

/** Runs of a comparison in the order of the document: the baseline, then the others. */
export function inOrder(runs: string[]): string[] {
  const order = compared();
  const [baseline, ...others] = runs;
  return baseline === undefined ? [] : [baseline, ...others.sort((a, b) => order.indexOf(a) - order.indexOf(b))];
}

/** The runs whose comparisons are in the document. */
export const compared = (): string[] => (lookup('page/api/compare/problems') as { runs?: string[] } | undefined)?.runs ?? [];

/** A file of the document as an address that can be shown, or null. */
export function fileOf(path: string): { type: string; bytes: Uint8Array<ArrayBuffer> } | null {
  const file = lookup(path) as { data?: string; type?: string } | undefined;
  if (!file || typeof file.data !== 'string') return null;
  return { type: file.type ?? 'application/octet-stream', bytes: decode(file.data) };
}

function read(): Answers | null {
  const text = document.getElementById('page-data')?.textContent;
  if (!text) return null;
  try {
    const parsed = JSON.parse(text) as Answers;
    return parsed.responses ? parsed : null;
  } catch {
    return { v: 1, responses: {} };
  }
}

function lookup(path: string): unknown {
  const responses = embedded?.responses ?? {};
  if (Object.hasOwn(responses, path)) return responses[path];
  const plain = decodeURIComponent(path);
  return Object.hasOwn(responses, plain) ? responses[plain] : undefined;
}

function apply(path: string, answer: Record<string, unknown>, query: Query): unknown {
  if (path.endsWith('/events')) return events(answer, query);
  if (path.endsWith('/turns')) return turns(answer as TurnPage, query);
  if (path === 'page/api/runs') return page(answer, 'runs', sortRuns((answer.runs as RunRow[]).filter((r) => matchesRun(r, query)), query), query);
  if (path.endsWith('/attempts')) return page(answer, 'attempts', sortAttempts((answer.attempts as AttemptRow[]).filter((a) => matchesAttempt(a, query)), query), query);
  if (path.endsWith('/problems')) return problems(answer, query);
  if (path.endsWith('/steps')) return page(answer, 'steps', answer.steps as StepRow[], query);
  if (path.endsWith('/groups')) return groups(answer, query);
  if (query.text !== undefined && typeof answer.data === 'string') return text(answer.data, query);
  return answer;
}

function text(data: string, query: Query): unknown {
  const bytes = decode(data);
  const from = Number(query.from ?? 0);
  let end = Math.min(bytes.length, from + Number(query.limit ?? 262144));
  // A character that would be cut belongs to the next part.
  for (let back = 0; back < 3 && end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80; back++) end--;
  return { size: bytes.length, from, end, utf8: true, text: new TextDecoder().decode(bytes.subarray(from, end)) };
}

/** Turns, with an entry where the document leaves some out. */
function turns(answer: TurnPage, query: Query): TurnPage {
  const { omitted } = answer;
  const gap = omitted && { turn: 0, event: omitted.event, at: 0, model_ms: 0, tool_ms: 0, input: 0, cached: 0, output: 0, reasoning: 0, cost: null, calls: [], stop: null, files: 0, omitted: omitted.turns };
  const all: Turn[] = gap ? answer.turns.toSpliced(omitted.at, 0, gap) : answer.turns;
  const from = Number(query.from ?? 0);
  return { ...answer, total: all.length, turns: all.slice(from, from + Number(query.limit ?? 5000)) };
}

/** Problems with the cells of the runs that are asked for. */
function problems(answer: Record<string, unknown>, query: Query): unknown {
  const runs = answer.runs as string[];
  const columns = String(query.runs ?? '').split(',').map((id) => runs.indexOf(id));
  const all = (answer.problems as ProblemRow[]).map((p) => ({ ...p, cells: columns.map((c) => p.cells[c] ?? null) })).filter((p) => p.cells.some((c) => c !== null));
  return page({ total: all.length }, 'problems', all.filter((p) => matchesProblem(p, query)), query);
}

function events(answer: Record<string, unknown>, query: Query): unknown {
  const from = Number(query.from ?? 1);
  const to = from + Number(query.limit ?? 200);
  return { ...answer, from, events: (answer.events as EventItem[]).filter((e) => e.n >= from && e.n < to) };
}

function groups(answer: Record<string, unknown>, query: Query): unknown {
  const all = answer.groups as (Group & { step?: number; set?: string })[];
  const kept = all.filter((g) => (query.step === undefined || g.step === undefined || g.step === Number(query.step)) && (!query.set || g.set === undefined || g.set === query.set));
  return page({ total: kept.length }, 'groups', kept, query);
}

function page(answer: Record<string, unknown>, name: string, list: unknown[], query: Query): unknown {
  const offset = Number(query.offset ?? 0);
  return { ...answer, matched: list.length, offset, [name]: list.slice(offset, offset + Number(query.limit ?? 100)) };
}

const has = (query: Query, ...texts: unknown[]): boolean => {
  const all = texts.map((t) => String(t ?? '')).join('\n').toLowerCase();
  return String(query.q ?? '').toLowerCase().split(/\s+/).every((word) => all.includes(word));
};

const matchesRun = (r: RunRow, query: Query): boolean => (!query.kind || r.kind === query.kind) && has(query, r.name, r.path, r.model, r.task, r.tasks?.join(' '));

function matchesAttempt(a: AttemptRow, query: Query): boolean {
  for (const key of ['task', 'mode', 'outcome', 'result', 'set', 'problem'] as const) if (query[key] && a[key] !== query[key]) return false;
  if (query.step !== undefined && query.step !== '' && a.step !== Number(query.step)) return false;
  return has(query, a.id, a.task, a.problem, a.title, a.answer, a.expected);
}

function matchesProblem(p: ProblemRow, query: Query): boolean {
  const solved = (i: number) => {
    const cell = p.cells[i];
    return cell ? 2 * cell.passed > cell.valid : null;
  };
  const [base, other] = [solved(0), solved(Number(query.other ?? 1))];
  const only = query.only ?? 'all';
  const known = p.cells.map((_, i) => solved(i)).filter((s) => s !== null);
  if (only === 'disagree' && !(known.includes(true) && known.includes(false))) return false;
  if (only === 'gained' && !(base === false && other === true)) return false;
  if (only === 'lost' && !(base === true && other === false)) return false;
  if (only === 'both' && !(base && other)) return false;
  if (only === 'neither' && !(base === false && other === false)) return false;
  return (!query.task || p.task === query.task) && (!query.mode || p.mode === query.mode) && has(query, p.problem, p.title, p.task);
}

const direction = (query: Query, usual: 'asc' | 'desc'): number => ((query.order ?? usual) === 'desc' ? -1 : 1);

function sortRuns(list: RunRow[], query: Query): RunRow[] {
  const key = String(query.sort ?? 'started') as keyof RunRow;
  return by(list, (r) => r[key] as string | number | null, direction(query, key === 'started' ? 'desc' : 'asc'));
}

function sortAttempts(list: AttemptRow[], query: Query): AttemptRow[] {
  const sort = String(query.sort ?? 'task');
  if (sort === 'task') return direction(query, 'asc') < 0 ? [...list].reverse() : list;
  const value = (a: AttemptRow): string | number | null | undefined => {
    if (sort === 'tokens') return a.tokens ? a.tokens.input + a.tokens.output : null;
    if (sort === 'time') return a.wall_ms;
    return a[sort as keyof AttemptRow] as string | number | null;
  };
  return by(list, value, direction(query, 'asc'));
}

/** Sorts by a value; what has none comes last. */
function by<T>(list: T[], value: (item: T) => string | number | null | undefined, sign: number): T[] {
  return [...list].sort((x, y) => {
    const [a, b] = [value(x), value(y)];
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    return a < b ? -sign : a > b ? sign : 0;
  });
}

function decode(base64: string): Uint8Array<ArrayBuffer> {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
