// A server with made-up records that answers as the program does. `node tests/serve.mjs [PORT]` serves `dist`.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { shell } from './shell.mjs';
import { commands, fromReference, hostile, HOSTILE_HTML, LAUGHS, longEvent, metrics, PROTECTION, random, references, resumed, SETTINGS, shortEpisode, START, wrongTypes } from './fixture.mjs';

const dist = join(dirname(fileURLToPath(import.meta.url)), '../dist');
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };
export const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; media-src 'self' blob:; connect-src 'self'; frame-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const LONG = 300_001;

const row = (id, kind, more) => ({ id, kind, name: id, path: id, model: null, task: null, tasks: [], modes: [], score: null, state: 'ended', attempts: null, steps: null, turns: null, tokens: null, cost: null, started: START, updated: START + 900000, format: kind === 'benchmark' ? 'results' : kind, problem: null, attempt: kind === 'run' || kind === 'file' ? '0' : null, ...more });
const bench = (id, model, n, share, more = {}) => row(id, 'benchmark', { path: `study/${id}`, model, task: 'math', tasks: ['math'], modes: ['sandbox'], score: share, attempts: { planned: n, done: n, running: 0, passed: Math.round(n * share), failed: Math.round(n * (1 - share)) - 1, invalid: 1 }, turns: n * 8, tokens: { input: n * 9000, output: n * 800 }, cost: n * 0.0066, ...more });

/** Attempts of a benchmark. */
function attempts(run, n, share, seed) {
  const r = random(seed);
  return Array.from({ length: n }, (_, i) => {
    const score = r() < share ? 1 : 0;
    const invalid = i === 7;
    const turns = 4 + Math.floor(r() * 14);
    const running = run.state === 'running' && i === 4;
    return {
      id: `math,sandbox,aime25-${i},0`, task: 'math', mode: 'sandbox', problem: `aime25-${i}`, repeat: 0, title: `Find the number of ordered pairs (x, y) of integers between -100 and 100 such that ${12 + (i % 17)}x² − xy − 6y² = 0 and the sum of the digits is ${i}.`,
      model: run.model, state: running ? 'running' : 'ended', result: running ? 'running' : invalid ? 'invalid' : score ? 'passed' : 'failed', score: invalid || running ? null : score, reward: null, outcome: running ? null : invalid ? 'infrastructure' : turns > 16 ? 'max_turns' : 'submitted', cause: invalid ? 'the model server closed the connection' : null,
      answer: String(100 + ((i * 37 + (score ? 0 : 13)) % 800)), expected: String(100 + ((i * 37) % 800)), turns, tokens: { input: turns * 1100, output: turns * 120 }, cost: turns * 0.0008, model_ms: turns * 2300, tool_ms: turns * 210, wall_ms: turns * 2600,
      started: START + i * 4000, step: null, set: null, group: null, member: null, has_events: true, seed: i,
    };
  });
}

const small = bench('math-qwen3-4b', 'Qwen/Qwen3-4B', 60, 0.42);
const large = bench('math-qwen3-32b', 'Qwen/Qwen3-32B', 60, 0.78, { started: START + 4e6 });
const adapter = bench('math-qwen3-4b-adapter', 'Qwen/Qwen3-4B', 60, 0.57, { started: START + 5e6 });
const running = bench('ifbench-qwen3-32b', 'Qwen/Qwen3-32B', 294, 0.51, { task: 'ifbench', tasks: ['ifbench'], state: 'running', started: START + 9e6, attempts: { planned: 294, done: 130, running: 4, passed: 66, failed: 62, invalid: 2 } });
const many = bench('swe-large-study', 'deepseek-v3.2', 10000, 0.33, { started: START + 2e6 });
const trainings = ['rl-documents', 'rl-documents-lr2e-6'].map((id, i) => row(id, 'training', { model: 'Qwen/Qwen3-4B', task: 'documents', score: 0.6 + i * 0.04, state: i ? 'running' : 'ended', steps: { done: i ? 74 : 120, planned: 120 }, started: START + 6e6 + i * 1e6, format: 'training' }));
const files = references().map((r) => row(`${r.name}.json`, 'file', { format: 'reference', attempts: { planned: 1, done: 1, running: 0, passed: 0, failed: 0, invalid: 0 }, turns: r.trajectory.steps.length, started: null }));
const runRows = [
  running, large, small, adapter, many, ...trainings, ...files,
  row('20260301_101200', 'run', { model: 'Qwen/Qwen3-32B', task: null, turns: 6, tokens: { input: 8100, output: 1800 }, cost: 0.0066, started: START + 3e6 }),
  row('live', 'run', { model: 'Qwen/Qwen3-32B', state: 'running', turns: 3, started: START + 9.5e6 }),
  row('hostile<img src=x onerror=alert(1)>', 'run', { id: 'hostile', model: '<b>m</b>\u202E', path: '<script>alert(1)</script>', started: START - 1 }),
  row('long', 'run', { model: 'mock', turns: 150000, started: START - 2 }),
  row('resumed', 'run', { model: 'mock', turns: 4, started: START - 3 }),
  ...['parts-a', 'parts-b', 'alike-a', 'alike-b'].map((name) => row(name, 'run', { model: 'mock', turns: 800, started: START - 9 })),
  row('wrong', 'run', { model: 'mock', turns: 6, started: START - 4 }),
  ...['q1', 'none', 'q1,q2'].map((ids, i) => row(`inspect-${i}.eval`, 'file', { format: 'inspect', task: 'arith', attempt: i === 0 ? 'q1,1' : null, started: START - 5 - i, score: i === 1 ? null : 1 })),
  row('episodes', 'episodes', { name: 'episodes of the server', model: 'Qwen/Qwen3-32B', attempts: { planned: null, done: 2, running: 0, passed: 0, failed: 0, invalid: 0 }, started: START + 8e6 }),
];
const lists = new Map([[small, 0.42, 1], [large, 0.78, 2], [adapter, 0.57, 3], [many, 0.33, 5]].map(([r, share, seed]) => [r.id, attempts(r, r.attempts.planned, share, seed)]));
for (const r of [small, large, adapter, many]) {
  const valid = lists.get(r.id).filter((a) => a.score !== null);
  const passed = valid.filter((a) => a.score === 1).length;
  Object.assign(r, { score: passed / valid.length, attempts: { ...r.attempts, passed, failed: valid.length - passed, invalid: r.attempts.planned - valid.length } });
}
lists.set(running.id, attempts(running, 130, 0.51, 4));
const plainAttempt = (id, more = {}) => ({ id, task: null, mode: null, problem: null, repeat: null, title: 'Which region had the highest revenue in 2025, and how large was it?', model: 'Qwen/Qwen3-32B', state: 'ended', result: 'ungraded', score: null, reward: null, outcome: 'submitted', cause: null, answer: 'West 812346', expected: null, turns: 6, tokens: { input: 8100, output: 1800 }, cost: 0.0066, model_ms: 21000, tool_ms: 2100, wall_ms: 24000, started: START, step: null, set: null, group: null, member: null, has_events: true, seed: 1, ...more });
const served = [plainAttempt('ep_1'), plainAttempt('ep_2', { outcome: 'cancelled', turns: 3 })];
lists.set('episodes', served);
lists.set('inspect-0.eval', [plainAttempt('q1,1', { problem: 'q1', score: 1 })]);
lists.set('inspect-1.eval', []);
lists.set('inspect-2.eval', ['q1,1', 'q2,1'].map((id) => plainAttempt(id, { problem: id.slice(0, 2), score: 1 })));
for (const t of trainings) lists.set(t.id, Array.from({ length: 192 }, (_, i) => plainAttempt(`train,${(i >> 5) + 1},${(i >> 3) % 4},${i % 8}`, { task: 'documents', problem: `doc-${(i >> 3) % 4}`, step: (i >> 5) + 1, set: 'train', group: (i >> 3) % 4, member: i % 8, score: random(i + 7)() < 0.5 ? 1 : 0, result: 'passed' })));

/** Episodes too long to compare each turn with each: with turns of their own, with a few more at the start, and with turns that are all alike. */
const numbered = Array.from({ length: 800 }, (_, i) => `python3 work.py --part ${i}`);
const PARTS = { 'parts-a': numbered, 'parts-b': ['ls', 'pwd', 'date', ...numbered], 'alike-a': numbered.map(() => 'true'), 'alike-b': numbered.map(() => 'true') };
const kept = new Map();
/** The events of an attempt. */
function eventsOf(run, attempt) {
  const key = `${run} ${attempt.id}`;
  if (!kept.has(key)) {
    const file = references().find((r) => `${r.name}.json` === run);
    kept.set(key, file ? fromReference(file.trajectory) : run === 'hostile' ? hostile() : run === 'resumed' ? resumed() : run === 'wrong' ? wrongTypes() : PARTS[run] ? commands(PARTS[run]) : shortEpisode(1 + (attempt.seed ?? 0), attempt.score !== 0, run === 'live' || attempt.state === 'running').events);
  }
  return kept.get(key);
}

const CUT = 32768;
function cutEvent(event, path = '', cut = {}) {
  if (typeof event === 'string' && event.length > CUT) {
    cut[path] = event.length;
    return `${event.slice(0, 16384)}\n…\n${event.slice(-16384)}`;
  }
  if (Array.isArray(event)) return event.map((e, i) => cutEvent(e, `${path}/${i}`, cut));
  if (event && typeof event === 'object') return Object.fromEntries(Object.entries(event).map(([k, v]) => [k, cutEvent(v, `${path}/${k.replaceAll('~', '~0').replaceAll('/', '~1')}`, cut)]));
  return event;
}
const item = (n, event) => {
  const cut = {};
  const shown = cutEvent(event, '', cut);
  return Object.keys(cut).length ? { n, event: shown, cut } : { n, event: shown };
};

const summary = ({ arguments: given }) => String(typeof given === 'string' ? given : (given?.path ? `${given.command} ${given.path}` : (given?.command ?? ''))).slice(0, 120);
function turnRow(replied, n, observed) {
  const { event } = { event: replied };
  return {
    turn: event.turn, event: n, at: event.at, model_ms: event.millis, tool_ms: observed.reduce((s, o) => s + (o.millis ?? 0), 0), input: event.usage.input ?? 0, cached: event.usage.cached ?? 0, output: event.usage.output ?? 0, reasoning: event.usage.reasoning ?? 0, cost: event.cost ?? null,
    calls: (event.message.calls ?? []).map((c) => { const o = observed.find((x) => x.message.call_id === c.id); return { name: (c.name ?? '').slice(0, 60), text: summary(c), exit_code: o?.exit_code ?? null, error: false }; }), stop: event.stop,
    files: (event.message.calls ?? []).filter((c) => typeof c.arguments !== 'string' && ['create', 'str_replace', 'insert'].includes(c.arguments?.command)).length, dropped: false,
  };
}
function turnsOf(events) {
  const out = [];
  events.forEach((e, i) => {
    if (e.kind === 'resumed') for (const turn of out) turn.dropped ||= turn.turn > e.turn;
    if (e.kind === 'replied') out.push(turnRow(e, i + 1, events.slice(i + 1).filter((o) => o.kind === 'observed' && o.turn === e.turn)));
  });
  return out;
}
const most = (turns, key) => turns.reduce((m, t) => Math.max(m, t[key]), 0);
const sum = (turns, key) => turns.reduce((m, t) => m + t[key], 0);
const sums = (turns) => ({ model_ms: sum(turns, 'model_ms'), tool_ms: sum(turns, 'tool_ms'), input: sum(turns, 'input'), output: sum(turns, 'output'), max_model_ms: most(turns, 'model_ms'), max_tool_ms: most(turns, 'tool_ms'), max_output: most(turns, 'output'), max_input: most(turns, 'input') });

const facets = (list) => Object.fromEntries(['task', 'mode', 'outcome', 'result', 'set', 'step'].map((k) => [k, list.reduce((c, a) => (a[k] === null || a[k] === undefined ? c : { ...c, [a[k]]: (c[a[k]] ?? 0) + 1 }), {})]));
const words = (q) => (q ?? '').toLowerCase().split(/\s+/).filter(Boolean);
const has = (q, ...texts) => words(q).every((w) => texts.join(' ').toLowerCase().includes(w));
const sorted = (list, key, order) => (key ? [...list].sort((a, b) => ((key(a) ?? -Infinity) < (key(b) ?? -Infinity) ? -1 : 1) * (order === 'desc' ? -1 : 1)) : list);

const missing = (what) => ({ status: 404, body: { error: { code: 'not_found', message: `there is no ${what}` } } });
const FILES = {
  'output/answer.txt': ['text/plain', 'text', 'West 812346\n'],
  'output/report.md': ['text/markdown', 'markdown', '# Revenue by region\n\n- West: 812,346\n- North: 790,112\n\n[a link](javascript:alert(1))\n'],
  'output/totals.csv': ['text/csv', 'csv', 'region,revenue,share\nWest,812345.50,28.0%\nNorth,790112.25,27.3%\n"South, and islands",655390.00,22.6%\nEast,640981.75,22.1%\n'],
  'output/chart.svg': ['image/svg+xml', 'svg', '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 140" width="320" height="140"><rect width="320" height="140" fill="#fff"/><g fill="#0f766e"><rect x="20" y="20" width="50" height="100"/><rect x="95" y="26" width="50" height="94"/><rect x="170" y="45" width="50" height="75"/><rect x="245" y="48" width="50" height="72"/></g></svg>'],
  'output/page.html': ['text/html', 'html', HOSTILE_HTML],
  'output/laughs.svg': ['image/svg+xml', 'svg', LAUGHS],
  'output/data.bin': ['application/octet-stream', 'binary', '\0\x01\x02'],
  'input/sales.csv': ['text/csv', 'csv', `date,region,product,units,price\n${Array.from({ length: 300 }, (_, i) => `2025-01-${String(1 + (i % 28)).padStart(2, '0')},${['North', 'West', 'South', 'East'][i % 4]},${['anvil', 'rope', 'lamp'][i % 3]},${1 + (i % 9)},${(4 + (i % 40)).toFixed(2)}`).join('\n')}\n`],
};

function comparison(ids) {
  const runs = ids.map((id) => runRows.find((r) => r.id === id));
  const rows = lists.get(ids[0]).map((a, i) => ({ task: 'math', mode: 'sandbox', problem: a.problem, title: a.title, expected: a.expected, cells: ids.map((id) => { const b = lists.get(id)[i]; return b && b.score !== null ? { score: b.score, valid: 1, passed: b.score, attempts: [{ id: b.id, score: b.score, outcome: b.outcome, turns: b.turns, answer: b.answer }] } : null; }) }));
  return { runs, rows };
}
/** The exact test of two numbers of discordant pairs. */
function mcnemar(b, c) {
  const n = b + c;
  let [term, sum] = [0.5 ** n, 0];
  for (let k = 0; k <= Math.min(b, c); k++) {
    sum += term;
    term = (term * (n - k)) / (k + 1);
  }
  return Math.min(1, 2 * sum);
}
function compare(ids) {
  const { runs, rows } = comparison(ids);
  return {
    runs: runs.map((r) => ({ id: r.id, label: r.name.replace('math-', ''), name: r.name })), baseline: 0, tasks: ['math'], notes: ['1 problem has no valid attempt on one side and is left out.'],
    settings: { differing: [{ name: '--model', values: runs.map((r) => r.model) }, { name: '--adapter', values: runs.map((r) => (r.name.includes('adapter') ? 'documents' : null)) }], same: [['--temperature', '0.6'], ['--max-turns', '100'], ['--max-tokens', '65536'], ['--network', 'none']] },
    comparisons: ids.slice(1).map((_, i) => {
      const pairs = rows.filter((p) => p.cells[0] && p.cells[i + 1]);
      const mean = (k) => pairs.reduce((s, p) => s + p.cells[k].score, 0) / pairs.length;
      const better = pairs.filter((p) => p.cells[i + 1].score > p.cells[0].score).length;
      const worse = pairs.filter((p) => p.cells[i + 1].score < p.cells[0].score).length;
      const d = mean(i + 1) - mean(0);
      const n = pairs.length;
      const se = Math.sqrt(better + worse - (better - worse) ** 2 / n) / n;
      const p = mcnemar(better, worse);
      return { baseline: { run: 0, mode: 'sandbox' }, other: { run: i + 1, mode: 'sandbox' }, task: 'math', baseline_score: mean(0), other_score: mean(i + 1), difference: { problems: pairs.length, difference: d, se, normal: [d - 1.96 * se, d + 1.96 * se], bootstrap: [d - 1.93 * se, d + 1.95 * se], resamples: 10000, p, test: 'mcnemar', detectable: 2.8 * se, better, worse }, p_holm: Math.min(1, p * (i === 0 ? ids.length - 1 : 1)), left_out: { only_baseline: 0, only_other: 0, different: 0, invalid: 1, invalid_attempts: 2 } };
    }),
  };
}

function api(path, q) {
  const offset = Number(q.get('offset') ?? 0);
  const limit = Number(q.get('limit') ?? 100);
  const parts = path.split('/').map(decodeURIComponent);
  if (path === 'info') return { program: '0.1.0', mode: 'serve', title: 'study', root: '/home/me/study', read_only: false, can: { start: true, cancel: true, resume: true, fork: true, terminal: true }, models: ['Qwen/Qwen3-32B', 'Qwen/Qwen3-4B'], limits: { turns: 100, tokens: 65536, time: null, cost: null } };
  if (path === 'sandboxes') return { sandboxes: [{ id: 'i3k9x2m4', template: 'base', started: START, ends: START + 36e5, state: 'running' }] };
  if (path === 'runs') {
    const list = sorted(runRows.filter((r) => (!q.get('kind') || r.kind === q.get('kind')) && has(q.get('q'), r.name, r.model, r.task)), (r) => r[q.get('sort') ?? 'started'], q.get('order') ?? 'desc');
    return { version: 1, total: runRows.length, matched: list.length, offset, truncated: false, kinds: runRows.reduce((c, r) => ({ ...c, [r.kind]: (c[r.kind] ?? 0) + 1 }), {}), runs: list.slice(offset, offset + limit) };
  }
  if (parts[0] === 'compare') {
    const ids = (q.get('runs') ?? '').split(',');
    if (!ids.every((id) => lists.has(id))) return missing('run');
    if (!parts[1]) return compare(ids);
    const { rows } = comparison(ids);
    const other = Number(q.get('other') ?? 1);
    const s = (p, i) => (p.cells[i] ? p.cells[i].score === 1 : null);
    const tests = { all: () => true, disagree: (p) => new Set(p.cells.filter(Boolean).map((c) => c.score)).size > 1, gained: (p) => s(p, 0) === false && s(p, other), lost: (p) => s(p, 0) && s(p, other) === false, both: (p) => s(p, 0) && s(p, other), neither: (p) => s(p, 0) === false && s(p, other) === false };
    const list = rows.filter(tests[q.get('only') ?? 'all'] ?? tests.all).filter((p) => has(q.get('q'), p.problem, p.title));
    return { total: rows.length, matched: list.length, offset, problems: list.slice(offset, offset + limit) };
  }
  if (parts[0] !== 'runs') return missing('route');
  const run = runRows.find((r) => r.id === parts[1]);
  if (!run) return missing(`run \`${parts[1]}\``);
  const rest = parts.slice(2);
  if (rest.length === 0) {
    return { ...run, settings: SETTINGS, program: '0.1.0', directory: `/home/me/study/${run.path}`, commands: [{ label: 'resume', command: `llm-in-sandbox benchmark --resume study/${run.name}` }, { label: 'report', command: `llm-in-sandbox report study/${run.name}` }],
      results: run.kind === 'benchmark' ? [{ task: run.task, mode: 'sandbox', score: run.score, se: 0.06, interval: [run.score - 0.12, run.score + 0.12], attempts: run.attempts.planned, valid: run.attempts.planned - 1, passed: run.attempts.passed, problems: run.attempts.planned, pass_at: [{ k: 1, value: run.score }], outcomes: { submitted: 50, max_turns: 9, infrastructure: 1 }, turns_mean: 8.4, cost: run.cost }] : [] };
  }
  if (rest[0] === 'metrics') return run.kind === 'training' ? metrics(trainings.indexOf(run) + 1, run.steps.done) : missing('metrics');
  if (rest[0] === 'steps') return { total: 6, steps: Array.from({ length: 6 }, (_, i) => ({ step: i + 1, set: 'train', round: 0, groups: 4, episodes: 32, score_mean: 0.3 + i * 0.06, spread: 3 })).slice(offset, offset + limit) };
  if (rest[0] === 'groups') {
    const step = Number(q.get('step'));
    const members = lists.get(run.id).filter((a) => a.step === step);
    const groups = [0, 1, 2, 3].map((g) => { const m = members.filter((a) => a.group === g); return { group: g, problem: `doc-${g}`, title: 'How many of the invoices in input/ are overdue, and what do they add up to?', mean: m.reduce((s, a) => s + a.score, 0) / (m.length || 1), members: m.map((a) => ({ attempt: a.id, member: a.member, score: a.score, end: a.outcome, turns: a.turns, tokens: 2100 })) }; });
    return { total: 4, groups: groups.slice(offset, offset + limit) };
  }
  if (rest[0] !== 'attempts') return missing('route');
  const single = !lists.has(run.id);
  const list = single ? [plainAttempt('0', { model: run.model, state: run.state, outcome: run.state === 'running' ? null : 'submitted', turns: run.turns, ...(run.kind === 'file' ? { title: references().find((r) => `${r.name}.json` === run.id)?.trajectory.problem_statement.slice(0, 200), answer: null } : {}), ...(run.id === 'hostile' ? { title: hostile()[0].problem_statement, answer: hostile()[0].problem_statement, cause: '<img src=x onerror=alert(9)>' } : {}), ...(run.id === 'long' ? { title: 'Work for a very long time.', answer: null } : {}) })] : lists.get(run.id);
  if (rest.length === 1) {
    const key = { score: (a) => a.score, turns: (a) => a.turns, tokens: (a) => a.tokens.input, cost: (a) => a.cost, time: (a) => a.wall_ms, problem: (a) => a.problem }[q.get('sort')];
    const found = sorted(list.filter((a) => ['task', 'mode', 'outcome', 'result', 'set', 'step', 'problem'].every((k) => !q.get(k) || String(a[k]) === q.get(k)) && has(q.get('q'), a.problem, a.title, a.answer)), key, q.get('order'));
    return { total: list.length, matched: found.length, offset, facets: facets(list), attempts: found.slice(offset, offset + limit) };
  }
  const at = list.findIndex((a) => a.id === rest[1]);
  const attempt = list[at];
  if (!attempt) return missing(`attempt \`${rest[1]}\``);
  return oneAttempt(run, list, at, attempt, rest.slice(2), q);
}

function oneAttempt(run, list, at, attempt, rest, q) {
  const long = run.id === 'long';
  const events = long ? null : eventsOf(run.id, attempt);
  const total = long ? LONG : events.length;
  const from = Number(q.get('from') ?? 0);
  const limit = Number(q.get('limit') ?? 5000);
  if (rest.length === 0) {
    const first = long ? longEvent(1) : events[0];
    return { ...attempt, run: { id: run.id, name: run.name, kind: run.kind, format: run.format, attempt: run.attempt }, number: at + 1, previous: list[at - 1]?.id ?? null, next: list[at + 1]?.id ?? null, task_text: first.problem_statement, messages: first.messages, settings: first.settings, protection: first.protection, program: '0.1.0', outcome_text: attempt.outcome === 'submitted' ? 'the model submitted its answer' : null,
      spent: long ? null : (events.at(-1).spent ?? null), grade: attempt.score === null ? {} : { method: 'math_verify', extracted: attempt.answer }, judgement: null, events: { total, bytes: total * 410, complete: attempt.state !== 'running' }, steps: long ? 150000 : turnsOf(events).reduce((s, t) => s + t.calls.length, 0), ended: attempt.state === 'running' ? null : START + 25000,
      server_episode: run.id === 'episodes' ? { id: attempt.id, state: attempt.outcome === 'cancelled' ? 'cancelled' : 'finished', keep: 'every_turn', forkable: [0, 1, 2, 3], parent: null, owner: 'default' } : null, files: run.kind === 'file' || run.kind === 'benchmark' || long ? { input: 0, output: 0 } : { input: 1, output: 7 }, exports: ['html', 'events', 'messages', 'atif'], commands: [{ label: 'replay', command: `llm-in-sandbox replay study/${run.name}${run.kind === 'benchmark' ? ` --id ${attempt.problem}` : ''}` }, { label: 'repeat in a new sandbox', command: `llm-in-sandbox replay study/${run.name} --sandbox` }], damage: null };
  }
  if (rest[0] === 'events' && rest[1]) return { n: Number(rest[1]), event: long ? longEvent(Number(rest[1])) : events[Number(rest[1]) - 1] };
  if (rest[0] === 'events') {
    const last = Math.min(total, from + Number(q.get('limit') ?? 200) - 1);
    const out = [];
    for (let n = from; n <= last; n++) out.push(item(n, long ? longEvent(n) : events[n - 1]));
    return { from, total, complete: true, events: out };
  }
  if (rest[0] === 'turns' && rest[2] === 'changes') {
    const event = q.get('event') ? events[Number(q.get('event')) - 1] : events.findLast((e) => e.kind === 'replied' && e.turn === Number(rest[1]));
    const changes = (event?.message.calls ?? []).filter((c) => c.arguments.file_text || c.arguments.old_str).map((c, i) => ({ path: c.arguments.path, how: c.arguments.file_text ? 'created' : 'edited', source: 'tool_call', call: i, before: null, after: null, diff: (c.arguments.file_text ?? c.arguments.new_str ?? '').split('\n').map((text) => ({ type: 'added', text })), cut: false }));
    return { turn: Number(rest[1]), complete: false, note: 'derived from the tool calls; what other commands changed is not recorded', changes };
  }
  if (rest[0] === 'turns') {
    if (long) {
      const turns = [];
      for (let t = from + 1; t <= Math.min(150000, from + limit); t++) turns.push(turnRow(longEvent(t * 2), t * 2, [longEvent(t * 2 + 1)]));
      return { total: 150000, turns, sums: { model_ms: 2e8, tool_ms: 3e7, input: 5e8, output: 3e7, max_model_ms: 2300, max_tool_ms: 400, max_output: 340, max_input: 6000 } };
    }
    const turns = turnsOf(events);
    const first = turns.findIndex((t) => t.dropped);
    return { total: turns.length, turns: turns.slice(from, from + limit), sums: sums(turns), ...(first >= 0 ? { undone: [[first, turns.findLastIndex((t) => t.dropped)]] } : {}) };
  }
  if (rest[0] === 'changes') return { files: run.kind === 'file' || long ? [] : [{ path: '/testbed/revenue.py', turns: [3], how: 'created' }] };
  if (rest[0] === 'files' && !rest[1]) {
    const entries = run.kind === 'file' || run.kind === 'benchmark' || long ? [] : Object.entries(FILES).map(([path, [type, show, text]]) => [path, { path: path.slice(path.indexOf('/') + 1), size: text.length, type, show }]);
    const area = (name) => entries.filter(([p]) => p.startsWith(name)).map(([, e]) => e);
    return { input: area('input'), output: area('output'), truncated: false, input_known: true, output_known: run.kind !== 'benchmark' };
  }
  if (rest[0] === 'files') {
    const file = FILES[rest.slice(1).join('/')];
    if (!file) return missing('file');
    if (!q.get('text')) return { file };
    return { size: file[2].length, from, end: file[2].length, utf8: true, text: file[2].slice(from) };
  }
  return missing('route');
}

/** Streams the rest of the live episode, an event every `ms`. */
function stream(response, ms) {
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  const all = shortEpisode(1, true).events;
  let n = eventsOf('live', { id: '0', seed: 0 }).length;
  const timer = setInterval(() => {
    if (n >= all.length) {
      response.write(`event: end\ndata: {"total": ${n}}\n\n`);
      clearInterval(timer);
      return response.end();
    }
    if (all[n].kind === 'replied') for (const text of ['Now I ', 'Now I compute ', 'Now I compute it.']) response.write(`event: partial\ndata: ${JSON.stringify({ text })}\n\n`);
    n++;
    response.write(`id: ${n}\nevent: event\ndata: ${JSON.stringify(item(n, all[n - 1]))}\n\n`);
  }, ms);
  response.on('close', () => clearInterval(timer));
}

/** Starts the server and resolves with its address. `log` gets every path that is asked for. */
export function serve(port = 0, { log = () => undefined, ms = 150 } = {}) {
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost');
    log(`${request.method} ${url.pathname}${url.search}`);
    const json = (status, body) => {
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (request.method !== 'GET') {
      if (url.pathname === '/v1/episodes' || url.pathname.endsWith('/fork')) return json(201, { id: 'ep_1' });
      if (url.pathname === '/page/api/sandboxes') return json(201, { id: 'i3k9x2m4' });
      response.writeHead(204);
      return response.end();
    }
    if (url.pathname === '/page/api/changes') {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      let done = 130;
      const timer = setInterval(() => {
        done = Math.min(294, done + 1);
        response.write(`event: runs\ndata: ${JSON.stringify({ version: done, runs: [{ ...running, updated: START + 900000 + done, attempts: { ...running.attempts, done } }], removed: [] })}\n\n`);
      }, 400);
      return response.on('close', () => clearInterval(timer));
    }
    if (url.pathname.endsWith('/events/stream')) return stream(response, ms);
    if (url.pathname.startsWith('/page/api/')) {
      const answer = api(url.pathname.slice('/page/api/'.length), url.searchParams);
      if (answer.file) {
        response.writeHead(200, { 'Content-Type': answer.file[0], 'Content-Security-Policy': "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:", 'X-Content-Type-Options': 'nosniff' });
        return response.end(answer.file[2]);
      }
      return answer.status && answer.body ? json(answer.status, answer.body) : json(200, answer);
    }
    const name = url.pathname === '/' ? 'index.html' : url.pathname.replace(/^\/page\/assets\//, '');
    try {
      const bytes = readFileSync(join(dist, name.replaceAll('/', '')));
      response.writeHead(200, { 'Content-Type': TYPES[name.split('.').at(-1)] ?? 'application/octet-stream', 'Content-Security-Policy': POLICY });
      response.end(bytes);
    } catch {
      json(404, { error: { code: 'not_found', message: 'no such file' } });
    }
  });
  server.on('upgrade', (request, socket) => shell(request, socket));
  return new Promise((done) => server.listen(port, '127.0.0.1', () => done({ address: `http://127.0.0.1:${server.address().port}/`, close: () => { server.closeAllConnections(); server.close(); } })));
}

export { api };

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log((await serve(Number(process.argv[2] ?? 8099))).address);
