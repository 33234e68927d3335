// Starts the program for the tests: `view` on records in a temporary directory, or `serve` with a model of the tests.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { model } from './model.mjs';
import { records } from './records.mjs';

/** Starts it and resolves with its address, the records and how to stop it. */
export async function program(path) {
  const dir = mkdtempSync(join(tmpdir(), 'page-'));
  await records(dir);
  const child = spawn(path, ['view', dir, '--no-open'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const address = await printed(child, /http:\/\/\S+#token=\S+/);
  const close = async () => {
    await end(child);
    rmSync(dir, { recursive: true, force: true });
  };
  /** Exports some of the records and returns the file. */
  const exportOf = (...names) => {
    const file = join(dir, `${names.join('-')}.html`);
    const made = spawnSync(path, ['view', ...names.map((name) => join(dir, name)), '--export', file], { encoding: 'utf8' });
    if (made.status !== 0) throw new Error(`the export of ${names.join(', ')}: ${made.stderr}`);
    return `file://${file}`;
  };
  return { address, close, records: dir, exportOf };
}

/** The key of the served page. */
export const KEY = 'page-tests-3f9c1e';

/** Starts `serve` with a key and a model. `restart` ends the process as a crash would, and starts it again at the same port. */
export async function served(path) {
  const dir = mkdtempSync(join(tmpdir(), 'page-'));
  const mock = await model();
  const env = { ...process.env, SERVER_KEY: KEY, LLM_IN_SANDBOX_HOME: join(dir, 'home'), HOME: dir, NO_PROXY: '127.0.0.1' };
  for (const name of ['LLM_NAME', 'LLM_BASE_URL', 'LLM_API_KEY', 'OPENAI_API_KEY', 'ANTHROPIC_API_KEY', 'LLM_IN_SANDBOX_CONFIG', 'DOCKER_HOST']) delete env[name];
  const start = async (port) => {
    const args = ['serve', '--addr', `127.0.0.1:${port}`, '--api-key-env', 'SERVER_KEY', '--model', 'mock', '--base-url', mock.address, '--data-dir', join(dir, 'data')];
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], env, cwd: dir });
    const address = await printed(child, /http:\/\/127\.0\.0\.1:\d+/);
    return { child, address };
  };
  let now = await start(0);
  const address = `${now.address}/`;
  return {
    address, model: mock, data: join(dir, 'data'),
    restart: async () => {
      await end(now.child, 'SIGKILL');
      now = await start(new URL(address).port);
    },
    close: async () => {
      await end(now.child);
      mock.close();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Ends a program and waits until it is gone. */
function end(child, signal) {
  child.removeAllListeners('exit');
  const gone = new Promise((done) => child.once('exit', done));
  child.kill(signal);
  return gone;
}

/** Waits until the program prints something. */
export function printed(child, wanted) {
  let text = '';
  return new Promise((done, fail) => {
    const read = (data) => {
      text += data;
      const found = wanted.exec(text);
      if (found) done(found[0]);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.on('exit', () => fail(new Error(`the program ended: ${text}`)));
    setTimeout(() => fail(new Error(`nothing printed after 60 seconds: ${text}`)), 60_000).unref();
  });
}
