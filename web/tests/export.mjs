// A single-file export with made-up records, as the program writes it: the bundle inline, allowed by hash.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { api } from './serve.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Writes the file and returns its path. */
export function exported() {
  const run = 'runs/20260301_101200';
  const attempt = `${run}/attempts/0`;
  const q = new URLSearchParams({ limit: '100000', from: '0' });
  const responses = { 'page/api/info': { ...api('info', q), mode: 'export', can: {} } };
  for (const path of [run, attempt, `${attempt}/turns`, `${attempt}/files`, `${attempt}/changes`]) responses[`page/api/${path}`] = api(path, q);
  const text = Buffer.from(`x${'ä'.repeat(200_000)}`);
  const files = responses[`page/api/${attempt}/files`];
  responses[`page/api/${attempt}/files`] = { ...files, output: [...files.output, { path: 'umlauts.txt', size: text.length, type: 'text/plain', show: 'text' }] };
  responses[`page/api/${attempt}/files/output/umlauts.txt`] = { type: 'text/plain', data: text.toString('base64') };
  responses[`page/api/${attempt}/events`] = api(`${attempt}/events`, new URLSearchParams({ from: '1', limit: '100000' }));
  const all = api('runs', q);
  responses['page/api/runs'] = { ...all, total: 1, matched: 1, runs: all.runs.filter((r) => r.id === '20260301_101200') };
  const data = JSON.stringify({ v: 1, start: `#/${attempt}`, responses }).replaceAll('<', '\\u003c');
  const [script, style] = ['single.js', 'single.css'].map((name) => readFileSync(join(here, '../dist', name), 'utf8'));
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data: blob:; media-src blob:; frame-src blob:; base-uri 'none'; form-action 'none'`;
  const html = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>run</title><style>${style}</style></head><body><div id="app"></div><script type="application/json" id="page-data">${data}</script><script>${script}</script></body></html>`;
  mkdirSync(join(here, 'out'), { recursive: true });
  const path = join(here, 'out', 'export.html');
  writeFileSync(path, html);
  return path;
}
