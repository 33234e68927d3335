// Tests of the page in a real browser. `node tests/run.mjs` uses a server with made-up records; `--program PATH` starts
// the program on records in a temporary directory, and with `--serve` its server; with `--dist` the browser takes the bundle from `dist`, not from the
// program. `--only WORD` runs tests whose name has it.
import { chromium } from 'playwright-core';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { faultTests } from './faults.mjs';
import { tests } from './pages.mjs';
import { program, served } from './program.mjs';
import { realTests } from './real.mjs';
import { serve } from './serve.mjs';
import { servedTests } from './served.mjs';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const option = (name) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : undefined);
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const out = join(dirname(fileURLToPath(import.meta.url)), 'out');
mkdirSync(out, { recursive: true });

const path = option('--program');
const only = option('--only') ?? '';
const asked = [];
const serving = process.argv.includes('--serve');
const server = path ? await (serving ? served(path) : program(path)) : await serve(0, { log: (line) => asked.push(line), ms: 120 });
const browser = await chromium.launch({ executablePath, headless: true, args: FLAGS });
let failed = 0;
let passed = 0;

async function one([name, test, { alone: _, expected = [], ...options } = {}]) {
  const started = performance.now();
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(10_000);
  if (process.argv.includes('--dist')) await context.route('**/page/assets/*/*', (route) => route.fulfill({ path: join(out, '../../dist', new URL(route.request().url()).pathname.split('/').at(-1)) }));
  const tab = await context.newPage();
  const errors = [];
  const requests = [];
  tab.on('pageerror', (error) => errors.push(error.message));
  tab.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  tab.on('dialog', (dialog) => {
    errors.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  tab.on('request', (request) => requests.push(request.url()));
  // What the policy stops is reported as a request too, but never leaves the browser.
  tab.on('requestfailed', (request) => request.failure()?.errorText === 'csp' && requests.splice(requests.indexOf(request.url()), 1));
  const open = (hash) => tab.goto(server.address.replace(/#.*/, '') + hash);
  const spent = () => `${Math.round(performance.now() - started).toString().padStart(6)} ms`;
  try {
    const note = await test({ page: tab, open, requests, asked, context, address: server.address, records: server.records, exportOf: server.exportOf, model: server.model, restart: server.restart });
    const foreign = requests.filter((url) => !url.startsWith(new URL(server.address).origin) && !/^(data|blob|about|file|chrome|chrome-extension):/.test(url));
    if (foreign.length > 0) throw new Error(`asked another host: ${foreign[0]}`);
    const unexpected = errors.filter((e) => !expected.some((known) => e.includes(known)));
    if (unexpected.length > 0) throw new Error(`the page reported: ${unexpected[0]}`);
    passed++;
    console.log(note?.skip ? `skip ${spent()}  ${name}: ${note.skip}` : `ok   ${spent()}  ${name}${note ? `: ${note}` : ''}`);
  } catch (error) {
    failed++;
    await tab.screenshot({ path: join(out, `${name.replace(/\W+/g, '-')}.png`) }).catch(() => undefined);
    console.log(`FAIL ${spent()}  ${name}\n      ${String(error.message).split('\n').slice(0, 6).join('\n      ')}`);
  }
  // Answers that are being changed while the test ends are of no interest.
  await tab.unrouteAll({ behavior: 'ignoreErrors' }).catch(() => undefined);
  await context.close();
}

// Two at a time; those that measure come after the others.
const chosen = (serving ? servedTests : path ? realTests : [...tests, ...faultTests]).filter(([name]) => name.includes(only));
const queue = chosen.filter(([, , options]) => !options?.alone);
const worker = async () => {
  for (let next = queue.shift(); next; next = queue.shift()) await one(next);
};
await Promise.all([worker(), worker()]);
for (const test of chosen.filter(([, , options]) => options?.alone)) await one(test);
await browser.close();
await server.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 || passed === 0 ? 1 : 0);
