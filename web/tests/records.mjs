// Writes records as the program writes them, into a directory: runs, benchmarks, a training run, a hostile run and one of
// many events.
import { cpSync, createWriteStream, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { crc32, deflateRawSync } from 'node:zlib';
import { hostile, HOSTILE_HTML, LAUGHS, longEvent, metrics, random, resumed, SETTINGS, shortEpisode, START, wrongTypes } from './fixture.mjs';

const lines = (events) => `${events.map((e) => JSON.stringify(e)).join('\n')}\n`;
const put = (path, text) => {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
};

/** The number of events of the long run. */
export const LONG = Number(process.env.PAGE_EVENTS ?? 300_001);

/** Writes everything below a directory. */
export async function records(dir) {
  const run = shortEpisode(1, true);
  const at = join(dir, '20260301_101200');
  put(join(at, 'events.jsonl'), lines(run.events));
  put(join(at, 'files/answer.txt'), 'West 812346\n');
  put(join(at, 'files/totals.csv'), 'region,revenue\nWest,812345.50\n"South, and islands",655390.00\n');
  put(join(at, 'files/page.html'), HOSTILE_HTML);
  put(join(at, 'files/laughs.svg'), LAUGHS);
  begin(dir);
  put(join(dir, 'hostile/events.jsonl'), lines(hostile()));
  put(join(dir, 'wrong/events.jsonl'), lines(wrongTypes()));
  put(join(dir, 'resumed/events.jsonl'), lines(resumed()));
  inspect(join(dir, 'one-sample.eval'), ['q1']);
  inspect(join(dir, 'two-samples.eval'), ['q1', 'q2']);
  inspect(join(dir, 'no-samples.eval'), []);
  media(join(at, 'files'));
  many(join(dir, 'many'));
  for (const [name, share, seed] of [['math-small', 0.42, 1], ['math-large', 0.68, 2]]) benchmark(join(dir, name), name, share, seed);
  benchmark(join(dir, 'math-single'), 'math-single', 1, 3, 1);
  training(join(dir, 'rl-documents'), 1, 60);
  training(join(dir, 'rl-documents-b'), 2, 60);
  const references = join(dirname(fileURLToPath(import.meta.url)), '../../../shared/data/trajectories');
  if (existsSync(references)) cpSync(references, join(dir, 'references'), { recursive: true });
  await long(join(dir, 'long'));
}

/** Attempts of the large run. */
export const MANY = Number(process.env.PAGE_ATTEMPTS ?? 10_000);

/** A run of many attempts; their trajectories were removed to save space. */
function many(dir) {
  const r = random(11);
  put(join(dir, 'run.json'), JSON.stringify({ v: 1, program: '0.1.0', started: START, model: 'large-study', tasks: [{ name: 'math', problems: MANY, repeats: 1, attempts: MANY, grader: 'math', known_as: [], rows_sha256: 'a', words_sha256: 'b', grader_sha256: 'c' }], modes: ['sandbox'], settings: { same: { model: 'large-study' }, asked: {}, judge: null } }));
  const { events, task } = shortEpisode(1, true);
  const spent = events.at(-1).spent;
  mkdirSync(join(dir, 'attempts/math/sandbox'), { recursive: true });
  for (let i = 0; i < MANY; i++) {
    const score = r() < 0.33 ? 1 : 0;
    const record = { v: 1, task: 'math', mode: 'sandbox', id: `p${i}`, repeat: 0, domain: 'math', problem_statement: task, ground_truth: 'West 812346', answer: score ? 'West 812346' : 'North', score, grade: { method: 'exact' }, outcome: i % 9 === 0 ? 'max_turns' : 'submitted', spent: { ...spent, turns: 1 + (i % 40) }, tokens: { prompt: 900, model: 1800, environment: 600 }, started: START + i * 1000, wall_ms: 24000, tries: 1 };
    writeFileSync(join(dir, `attempts/math/sandbox/p${i}.0.json`), JSON.stringify(record));
  }
}

/** A sound and a document. */
function media(dir) {
  const samples = 8000;
  const wav = Buffer.alloc(44 + samples);
  wav.write('RIFF', 0);
  wav.writeUInt32LE(36 + samples, 4);
  wav.write('WAVEfmt ', 8);
  [[16, 4], [1, 2], [1, 2], [8000, 4], [8000, 4], [1, 2], [8, 2]].reduce((at, [value, size]) => (wav.writeUIntLE(value, at, size), at + size), 16);
  wav.write('data', 36);
  wav.writeUInt32LE(samples, 40);
  for (let i = 0; i < samples; i++) wav[44 + i] = 128 + Math.round(60 * Math.sin((i * 440 * 2 * Math.PI) / 8000));
  put(join(dir, 'tone.wav'), wav);
  // A text, and a bar of a color that nothing else on the page has.
  const drawing = 'BT /F1 18 Tf 20 40 Td (A PDF preview) Tj ET 0.8 0.1 0.5 rg 20 10 160 20 re f';
  const parts = ['<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >> >>', '<< /Type /Pages /Kids [3 0 R] /Count 1 >>', '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>', `<< /Length ${drawing.length} >>\nstream\n${drawing}\nendstream`, '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>'];
  let pdf = '%PDF-1.4\n';
  const offsets = parts.map((part, i) => {
    const at = pdf.length;
    pdf += `${i + 1} 0 obj\n${part}\nendobj\n`;
    return at;
  });
  const xref = pdf.length;
  pdf += `xref\n0 6\n0000000000 65535 f \n${offsets.map((o) => `${String(o).padStart(10, '0')} 00000 n \n`).join('')}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
  put(join(dir, 'report.pdf'), pdf);
}

async function long(dir) {
  mkdirSync(dir, { recursive: true });
  const file = createWriteStream(join(dir, 'events.jsonl'));
  for (let n = 1; n <= LONG; n += 1000) {
    const part = [];
    for (let i = n; i < Math.min(LONG + 1, n + 1000); i++) part.push(longEvent(i));
    if (!file.write(lines(part))) await once(file, 'drain');
  }
  file.end(lines([{ v: 1, at: START + LONG * 1500, kind: 'ended', outcome: 'max_turns', spent: { turns: LONG >> 1, usage: { input: 1, output: 1 }, context: 1, model_ms: 1, tool_ms: 1 } }]));
  await once(file, 'finish');
}

/** A log of Inspect: an archive of JSON files. */
function inspect(path, ids) {
  const messages = [
    { role: 'system', content: 'Answer with a number.' },
    { role: 'user', content: 'What is 2 + 2?' },
    { role: 'assistant', content: [{ type: 'reasoning', reasoning: 'A calculator is at hand.' }, { type: 'text', text: 'attachment://h' }], tool_calls: [{ id: 't', function: 'bash', arguments: { cmd: 'echo $((2+2))' }, type: 'function' }] },
    { role: 'tool', tool_call_id: 't', function: 'bash', content: '4', error: null },
    { role: 'assistant', content: 'The answer is 4.' },
  ];
  const sample = (id) => ({ id, epoch: 1, input: 'What is 2 + 2?', target: '4', messages, attachments: { h: 'I compute it.' }, events: [], started_at: '2026-01-02T03:04:05+00:00', completed_at: '2026-01-02T03:04:09+00:00', error: null, limit: null });
  const summary = (id) => ({ id, epoch: 1, input: 'What is 2 + 2?', target: '4', scores: { match: { value: 'C', answer: '4' } }, model_usage: { m: { input_tokens: 7, output_tokens: 3 } }, total_time: 2.5 });
  const members = { 'header.json': { version: 2, status: 'success', eval: { task: 'arithmetic', model: 'openai/mock', created: '2026-01-02T03:04:05+00:00' } }, 'summaries.json': ids.map(summary) };
  for (const id of ids) members[`samples/${id}_epoch_1.json`] = sample(id);
  put(path, archive(members));
}

/** A ZIP archive of JSON files. */
function archive(members) {
  const [files, directory] = [[], []];
  let at = 0;
  for (const [name, value] of Object.entries(members)) {
    const bytes = Buffer.from(JSON.stringify(value));
    const packed = deflateRawSync(bytes);
    const about = Buffer.alloc(26);
    about.writeUInt16LE(20, 0);
    about.writeUInt16LE(8, 4);
    about.writeUInt32LE(crc32(bytes), 10);
    about.writeUInt32LE(packed.length, 14);
    about.writeUInt32LE(bytes.length, 18);
    about.writeUInt16LE(name.length, 22);
    const end = Buffer.alloc(14);
    end.writeUInt32LE(at, 10);
    directory.push(Buffer.from('PK\x01\x02\x14\0'), about, end, Buffer.from(name));
    files.push(Buffer.from('PK\x03\x04'), about, Buffer.from(name), packed);
    at += 30 + name.length + packed.length;
  }
  const entries = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06');
  const count = Object.keys(members).length;
  end.writeUInt16LE(count, 8);
  end.writeUInt16LE(count, 10);
  end.writeUInt32LE(entries.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...files, entries, end]);
}

function benchmark(dir, model, share, seed, n = 40) {
  const r = random(seed);
  put(join(dir, 'run.json'), JSON.stringify({ v: 1, program: '0.1.0', started: START, model, tasks: [{ name: 'math', problems: n, repeats: 1, attempts: n, grader: 'math', known_as: [], rows_sha256: 'a', words_sha256: 'b', grader_sha256: 'c' }], modes: ['sandbox'], settings: { same: { model }, asked: {}, judge: null } }));
  for (let i = 0; i < n; i++) {
    const score = r() < share ? 1 : 0;
    const { events, task } = shortEpisode(i + 1, score === 1);
    const spent = events.at(-1).spent;
    const record = { v: 1, task: 'math', mode: 'sandbox', id: `aime25-${i}`, repeat: 0, domain: 'math', problem_statement: task, ground_truth: 'West 812346', answer: score ? 'West 812346' : 'North 790112', score, grade: { method: 'exact' }, outcome: 'submitted', spent, tokens: { prompt: 900, model: 1800, environment: 600 }, started: START + i * 1000, wall_ms: 24000, tries: 1 };
    put(join(dir, `attempts/math/sandbox/aime25-${i}.0.json`), JSON.stringify(record));
    put(join(dir, `trajectories/math/sandbox/aime25-${i}.0.jsonl`), lines(events));
  }
}

function training(dir, seed, steps) {
  const all = metrics(seed, steps);
  const names = { reward_mean: 'reward_mean', success: 'success', entropy: 'entropy', gradient_norm: 'gradient_norm', loss: 'loss', turns_mean: 'turns_mean' };
  put(join(dir, 'config.json'), JSON.stringify({ model: 'Qwen/Qwen3-4B', steps, ...SETTINGS }));
  put(join(dir, 'metrics.jsonl'), lines(all.steps.map((step, i) => ({ step, ...Object.fromEntries(all.metrics.filter((m) => names[m.name]).map((m) => [names[m.name], m.values[i]])) }))));
  for (let step = 1; step <= 3; step++) {
    const at = join(dir, `episodes/step-${String(step).padStart(6, '0')}-0`);
    const scores = [];
    for (let group = 0; group < 2; group++) {
      for (let member = 0; member < 4; member++) {
        const score = member % 2;
        const file = `${group}-${member}.jsonl`;
        put(join(at, file), lines(shortEpisode(step * 10 + member, score === 1).events));
        scores.push({ file, problem: `doc-${group}`, member, score, end: 'submitted', turns: 6, tokens: 1800 });
      }
    }
    put(join(at, 'scores.jsonl'), lines(scores));
  }
}

/** Begins the live run anew: a file that was written a moment ago counts as one of a run in progress. */
export const begin = (dir) => put(join(dir, 'live/events.jsonl'), lines(shortEpisode(1, true, true).events));

/** The rest of the live run, an event every `ms`, appended to its file. */
export async function goOn(dir, ms) {
  const { appendFile } = await import('node:fs/promises');
  const [seen, all] = [shortEpisode(1, true, true).events.length, shortEpisode(1, true).events];
  for (const event of all.slice(seen)) {
    await new Promise((done) => setTimeout(done, ms));
    await appendFile(join(dir, 'live/events.jsonl'), lines([event]));
  }
}
