// Builds the page into `dist`: the application as modules, and the same as one script and one style sheet for the
// single-file export. `node build.mjs --to DIR` builds elsewhere, so that a check can compare the two. It fails where the bundle
// is larger than it may be.
import { build } from 'esbuild';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const at = process.argv.indexOf('--to');
const out = at > 0 ? process.argv[at + 1] : join(here, 'dist');
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'utf8',
  legalComments: 'none',
  logLevel: 'warning',
};

// The application: modules, with what few people need in chunks that are loaded when they are needed.
await build({
  ...common,
  entryPoints: { app: 'src/main.tsx' },
  outdir: out,
  format: 'esm',
  splitting: true,
  chunkNames: 'chunk-[name]-[hash]',
  define: { SINGLE: 'false' },
});
// The export: one classic script without a terminal, because a file on a disk can load no others.
await build({
  ...common,
  entryPoints: { single: 'src/main.tsx' },
  outdir: out,
  format: 'iife',
  define: { SINGLE: 'true' },
});
await build({ ...common, entryPoints: { terminal: 'src/styles/terminal.css' }, outdir: out });
cpSync(join(here, 'src/index.html'), join(out, 'index.html'));
cpSync(join(here, 'src/icon.svg'), join(out, 'icon.svg'));

/** Bytes of what a browser may load, compressed, without the terminal and what only exports have. */
const MOST = 250_000;
const sizes = readdirSync(out).sort().map((name) => {
  const bytes = readFileSync(join(out, name));
  return { name, bytes: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length, brotli: brotliCompressSync(bytes).length };
});
if (!process.argv.includes('--quiet')) console.table(sizes);
const loaded = sizes.filter(({ name }) => !/^(chunk-terminal|terminal\.css|single\.)/.test(name)).reduce((sum, { gzip }) => sum + gzip, 0);
console.log(`${loaded} bytes compressed without the terminal`);
if (loaded > MOST) {
  console.error(`the bundle has ${loaded} bytes compressed without the terminal, more than ${MOST}`);
  process.exit(1);
}
