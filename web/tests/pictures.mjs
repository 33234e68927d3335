// Takes the pictures of the documentation: `node tests/pictures.mjs --program PATH [--keep DIR]`. The program plays the small
// tasks in its sandboxes with a scripted model, once as one that is often right and once as one that is less so; the
// training curves are those of the study in `examples`.
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { printed } from './program.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const docs = join(root, 'docs');
const option = (name) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : undefined);
const program = option('--program');
const rows = readFileSync(join(root, 'examples/small-tasks/tasks.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line));

/** A task about a table. */
const table = rows.find((r) => Object.keys(r.input_files).some((f) => f.endsWith('.csv')));

const call = (name, args) => ({ name, arguments: args });
const share = (text) => createHash('sha256').update(text).digest().readUInt32LE(0) / 2 ** 32;

/** What the scripted model does at a turn. It knows the answers, and is wrong where its name and the problem say so. */
function step(model, text, turn) {
  const row = rows.find((r) => text.includes(JSON.stringify(r.problem_statement).slice(1, -1)));
  const right = share(`${model} ${row?.id}`) < (model === 'mock-large' ? 0.8 : 0.55);
  const answer = right ? row?.ground_truth : /^\d+$/.test(row?.ground_truth ?? '') ? String(Number(row.ground_truth) + 1) : 'unknown';
  const files = Object.keys(row?.input_files ?? {});
  const look = { text: files.length ? 'I look at the files first.' : 'I check the tools first.', call: call('execute_bash', { command: files.length ? `ls -l /testbed/input && head -n 5 /testbed/input/${files[0]}` : 'python3 --version' }) };
  const write = { text: 'A small program is safer than counting by hand.', call: call('str_replace_editor', { command: 'create', path: '/testbed/solve.py', file_text: `"""${(row?.problem_statement ?? '').replaceAll('"', "'").slice(0, 70)}"""\nfrom pathlib import Path\n\n\ndef main() -> None:\n    result = ${JSON.stringify(answer)}\n    Path("/testbed/output/answer.txt").write_text(result + "\\n")\n    Path("/testbed/output/method.md").write_text("Computed by solve.py.\\n")\n    print("\\x1b[32mresult\\x1b[0m", result)\n\n\nmain()\n` }) };
  const go = { call: call('execute_bash', { command: 'cd /testbed && python3 solve.py && cat output/answer.txt' }) };
  const check = { text: 'The result has to be checked once more.', call: call('execute_bash', { command: "cd /testbed && sed -i 's/main() -> None/main(path=\"output\") -> None/' solve.py && wc -c output/answer.txt" }) };
  const submit = { call: call('submit', {}) };
  const plan = right ? [look, write, go, submit] : [look, write, go, check, submit];
  return plan[Math.min(turn, plan.length - 1)];
}

function scripted() {
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    if (!request.url.endsWith('/chat/completions')) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      return response.end(JSON.stringify({ object: 'list', data: ['mock-small', 'mock-large'].map((id) => ({ id, object: 'model' })) }));
    }
    const { messages, model, stream } = JSON.parse(body);
    const turn = messages.filter((m) => m.role === 'assistant').length;
    const { text, call: made } = step(model, JSON.stringify(messages.filter((m) => m.role === 'user')), turn);
    const usage = { prompt_tokens: 820 + turn * 130, completion_tokens: 40 + turn * 25, total_tokens: 860 + turn * 155, prompt_tokens_details: { cached_tokens: turn * 700 } };
    const tool = { id: `call_${turn}`, type: 'function', function: { name: made.name, arguments: JSON.stringify(made.arguments) } };
    await new Promise((done) => setTimeout(done, 60 + share(body.slice(-200)) * 240));
    const envelope = (object, choices) => ({ id: `c${turn}`, object, created: 1, model, choices });
    if (!stream) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      return response.end(JSON.stringify({ ...envelope('chat.completion', [{ index: 0, message: { role: 'assistant', content: text ?? null, tool_calls: [tool] }, finish_reason: 'tool_calls' }]), usage }));
    }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const say = (delta, finish = null) => response.write(`data: ${JSON.stringify(envelope('chat.completion.chunk', [{ index: 0, delta, finish_reason: finish }]))}\n\n`);
    say({ role: 'assistant', content: text ?? '' });
    say({ tool_calls: [{ index: 0, ...tool }] });
    say({}, 'tool_calls');
    response.end(`data: ${JSON.stringify({ ...envelope('chat.completion.chunk', []), usage })}\n\ndata: [DONE]\n\n`);
  });
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done({ address: `http://127.0.0.1:${server.address().port}/v1`, close: () => { server.closeAllConnections(); server.close(); } })));
}

/** The environment without the settings of whoever takes the pictures. */
function clean(dir) {
  const env = { ...process.env, LLM_IN_SANDBOX_HOME: join(dir, 'home'), HOME: dir, NO_PROXY: '127.0.0.1' };
  for (const name of ['LLM_NAME', 'LLM_BASE_URL', 'LLM_API_KEY', 'OPENAI_API_KEY', 'DOCKER_HOST']) delete env[name];
  return env;
}

/** Runs the program to its end, without blocking the model. */
function play(dir, args) {
  const child = spawn(program, args, { cwd: dir, env: clean(dir), stdio: ['ignore', 'inherit', 'inherit'] });
  return new Promise((done) => child.on('exit', (code) => { if (code !== 0) console.log(`${args[0]}: status ${code}`); done(code); }));
}

async function records(dir) {
  const model = await scripted();
  const runs = join(dir, 'runs');
  mkdirSync(join(dir, 'small'), { recursive: true });
  mkdirSync(runs, { recursive: true });
  writeFileSync(join(dir, 'small/rows.jsonl'), rows.map((r) => JSON.stringify({ ...r, domain: r.kind })).join('\n'));
  writeFileSync(join(dir, 'small/task.toml'), 'name = "small-tasks"\ndata = "rows.jsonl"\n\n[prompt]\ntask = "{problem_statement}\\n\\nFiles, if any, are in {input_dir}. Write the answer to {output_dir}/answer.txt."\nplain = "{problem_statement}\\n\\n{documents}"\n\n[grader]\nkind = "exact"\n');
  for (const name of ['mock-small', 'mock-large']) await play(dir, ['benchmark', 'small', '--model', name, '--base-url', model.address, '--output', join(runs, `small-tasks-${name}`), '--yes', '--no-preflight', '--quiet', '--concurrency', '2']);
  mkdirSync(join(dir, 'input'), { recursive: true });
  for (const [name, text] of Object.entries(table.input_files)) writeFileSync(join(dir, 'input', name), text);
  await play(dir, ['run', table.problem_statement, '--input', join(dir, 'input'), '--model', 'mock-large', '--base-url', model.address, '--output', runs, '--quiet']);
  for (const name of ['documents-1', 'documents-2', 'mixed-2']) cpSync(join(root, 'examples/study/logs', name), join(runs, name), { recursive: true });
  model.close();
}

const kept = option('--keep');
const dir = kept ?? mkdtempSync(join(tmpdir(), 'pictures-'));
if (!existsSync(join(dir, 'runs'))) await records(dir);
const viewing = spawn(program, ['view', 'runs', '--no-open'], { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] });
const viewed = await printed(viewing, /http:\/\/\S+#token=\S+/);
const thinking = await scripted();
const KEY = 'pictures-5d1f';
const environment = { ...clean(dir), SERVER_KEY: KEY };
const serving = spawn(program, ['serve', '--addr', '127.0.0.1:0', '--api-key-env', 'SERVER_KEY', '--model', 'mock-large', '--base-url', thinking.address, '--data-dir', join(dir, 'served')], { cwd: dir, env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
const served = `${await printed(serving, /http:\/\/127\.0\.0\.1:\d+/)}/`;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
const settled = (page) => page.waitForFunction(() => !document.querySelector('.loading, .ghost-turn, .pending'));
/** Goes to a view of the server. */
const enter = async (page, hash) => {
  await page.goto(served + hash);
  await page.getByLabel('Key').fill(KEY);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 'Try it' }).waitFor();
};

/** Each picture: where it is, and what is done before it is taken. */
const PICTURES = {
  runs: async (page) => page.getByRole('link', { name: 'small-tasks-mock-large', exact: true }).waitFor(),
  episode: async (page) => {
    await page.getByRole('row', { name: /mock-large/ }).filter({ hasText: /^20/ }).getByRole('link').first().click();
    await page.locator('.turn').first().waitFor();
    const changed = page.locator('.turn[aria-label="Turn 3"]').getByRole('button', { name: /file.* changed/ });
    for (let turn = 1; turn <= 3; turn++) {
      await page.keyboard.press('j');
      await page.locator(`.turn.current[aria-label="Turn ${turn}"]`).waitFor();
    }
    await changed.click();
    await page.locator('.turn[aria-label="Turn 3"] .change').first().waitFor();
  },
  compare: async (page) => {
    for (const name of ['mock-small', 'mock-large']) await page.getByLabel(`Choose small-tasks-${name} to compare`).check();
    await page.getByRole('link', { name: 'Compare', exact: true }).last().click();
    await page.getByRole('button', { name: 'Disagreements' }).click();
    await page.getByRole('link', { name: 'Side by side' }).first().waitFor();
  },
  columns: async (page) => {
    await PICTURES.compare(page);
    await page.getByRole('link', { name: 'Side by side' }).first().click();
    await page.locator('.side-cell .call').first().waitFor();
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight / 3; });
  },
  training: async (page) => {
    await page.getByRole('link', { name: 'Training', exact: true }).first().click();
    await page.locator('.chart canvas').first().waitFor();
  },
  files: async (page) => {
    await PICTURES.try(page);
    await page.getByRole('button', { name: 'Start' }).click();
    await page.locator('.title-line .badge', { hasText: 'submitted' }).waitFor();
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.getByRole('link', { name: /\.csv/ }).click();
    await page.locator('table.csv').waitFor();
  },
  try: async (page) => {
    await enter(page, '#/try');
    await page.getByLabel('Task').fill(table.problem_statement);
    await page.getByLabel('Files', { exact: true }).setInputFiles(Object.entries(table.input_files).map(([name, text]) => ({ name, mimeType: 'text/csv', buffer: Buffer.from(text) })));
    await page.getByLabel('Turn limit').fill('20');
    await page.getByLabel('Turn limit').blur();
  },
  terminal: async (page) => {
    await enter(page, '#/terminal');
    await page.getByRole('button', { name: 'New sandbox' }).waitFor();
    await page.waitForFunction(() => document.querySelector('.sandbox-row, .state'));
    const ends = page.getByRole('button', { name: /^End sandbox/ });
    for (let left = await ends.count(); left > 0; left--) {
      await ends.first().click();
      await page.getByRole('button', { name: 'End it' }).click();
      await page.waitForFunction((n) => document.querySelectorAll('.sandbox-row').length < n, left);
    }
    await page.getByText('No sandbox is running').waitFor();
    await page.getByRole('button', { name: 'New sandbox' }).click();
    await page.locator('.xterm-helper-textarea').waitFor({ state: 'attached' });
    const shows = (text) => page.waitForFunction((wanted) => (document.querySelector('.xterm-rows')?.textContent?.replaceAll('\u00a0', ' ') ?? '').includes(wanted), text);
    await shows('$ ');
    await page.locator('.xterm-helper-textarea').focus();
    for (const [line, output] of [['python3 --version', 'Python 3.'], ['ls -l --color /', ' var'], ["printf '\\033[32mgreen\\033[0m \\033[31mred\\033[0m \\033[34mblue\\033[0m\\n'", 'green red blue']]) {
      await page.keyboard.type(`${line}\n`);
      await shows(output);
    }
  },
  attempts: async (page) => {
    await page.getByRole('link', { name: 'small-tasks-mock-small', exact: true }).click();
    await page.locator('.virtual-row a.cover').first().waitFor();
  },
  empty: async (page) => {
    await page.getByLabel('Search runs').fill('nothing like this');
    await page.getByText('No run matches').waitFor();
  },
  error: async (page) => {
    await page.goto(`${viewed.replace(/#.*/, '')}#/runs/nope`);
    await page.getByText('Cannot show this').waitFor();
  },
};
/** Those of the documentation, and of them those of a phone; the others are looked at. */
const DOCUMENTED = ['runs', 'episode', 'compare', 'columns', 'training', 'files', 'try', 'terminal'];
const OF_PHONES = ['runs', 'episode', 'compare'];
const HEIGHTS = { runs: 480, training: 1030, try: 580 };
const PHONE_HEIGHTS = { runs: 560 };
const out = join(root, 'web/tests/out');
mkdirSync(out, { recursive: true });
const only = option('--only');
for (const [name, act] of Object.entries(PICTURES).filter(([name]) => !only || name === only)) {
  for (const [kind, options] of [['light', {}], ['dark', { colorScheme: 'dark' }], ['phone', { viewport: { width: 390, height: PHONE_HEIGHTS[name] ?? 844 } }]]) {
    const context = await browser.newContext({ viewport: { width: 1280, height: HEIGHTS[name] ?? 800 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    try {
      await page.goto(viewed);
      await page.getByLabel('Search runs').waitFor();
      await page.locator('.virtual-row').first().waitFor();
      await act(page);
      await settled(page);
      await page.mouse.move(640, 20);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const path = (kind === 'phone' ? OF_PHONES : DOCUMENTED).includes(name) ? join(docs, `page-${name}-${kind}.png`) : join(out, `${name}-${kind}.png`);
      await page.screenshot({ path });
      console.log(path);
    } catch (error) {
      console.log(`${name} ${kind}: ${String(error.message).split('\n').slice(0, 3).join(' ')}`);
      await page.screenshot({ path: join(out, `${name}-${kind}-failed.png`) });
    }
    await context.close();
  }
}
await browser.close();
for (const child of [viewing, serving]) {
  child.removeAllListeners('exit');
  const gone = new Promise((done) => child.once('exit', done));
  child.kill();
  await gone;
}
thinking.close();
if (!kept) rmSync(dir, { recursive: true, force: true });
process.exit(0);
