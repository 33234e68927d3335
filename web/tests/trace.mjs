// Opens a view in a new tab under the browser's own trace, and says what the trace shows.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { check } from './check.mjs';

const CATEGORIES = ['devtools.timeline', 'loading', 'blink.user_timing', 'disabled-by-default-devtools.timeline', '__metadata'];
/** A frame that takes longer than two of a screen with 60 a second is late. */
const LATE = 1000 / 30;

/**
 * Opens `hash` in a tab that is signed in, waits for `first`, and lets `act` scroll; `drawn` measures how long something takes to
 * be drawn. The trace is left as `tests/out/NAME.json`.
 */
export async function traced({ page, address }, hash, name, first, act) {
  const browser = page.context().browser();
  const path = join(dirname(fileURLToPath(import.meta.url)), 'out', `${name}.json`);
  const tab = await page.context().newPage();
  await tab.addInitScript(() => {
    globalThis.frameTimes = [];
    let last = performance.now();
    const tick = (now) => { globalThis.frameTimes.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
  });
  await page.goto('about:blank');
  await browser.startTracing(tab, { path, categories: CATEGORIES });
  await tab.goto(address.replace(/#.*/, '') + hash);
  const shown = await tab.waitForFunction((selector) => document.querySelector(selector) && performance.now(), first, { polling: 'raf', timeout: 60_000 });
  const content = Math.round(await shown.jsonValue());
  await tab.evaluate(() => { globalThis.frameTimes.length = 0; });
  const jumps = [];
  let frames = [];
  await act(tab, async (wait) => {
    if (jumps.length === 0) frames = await tab.evaluate(() => globalThis.frameTimes.slice(1));
    const started = performance.now();
    await wait();
    jumps.push(Math.round(performance.now() - started));
  });
  // The trace names the paint; when the navigation began is not in it where the browser changed the process for it.
  const fcp = await tab.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1);
  await browser.stopTracing();
  await tab.close();
  const { traceEvents: events } = JSON.parse(readFileSync(path, 'utf8'));
  // Other tabs may paint too; that of the test has by far the most tasks.
  const [paint, tasks] = events.filter((e) => e.name === 'firstContentfulPaint').map((e) => [e, tasksOf(events, e, e.ts - fcp * 1000)]).sort(([, a], [, b]) => b.length - a.length)[0] ?? [null, []];
  check(paint && fcp > 0, 'the trace has no first contentful paint');
  check(tasks.length > 100, `the trace has ${tasks.length} tasks`);
  const longest = Math.round(Math.max(...tasks));
  const late = frames.filter((ms) => ms > LATE).length;
  const note = `first contentful paint ${Math.round(fcp)} ms; content after ${content} ms; longest task ${longest} ms, ${tasks.filter((ms) => ms > 50).length} above 50 ms; `
    + `${late} of ${frames.length} frames late while scrolling, longest ${Math.round(Math.max(...frames))} ms; jumps drawn after ${jumps.join(' and ')} ms`;
  return { note, longest };
}

/** Milliseconds of the tasks of the thread of an event, from a time on. */
const tasksOf = (events, { pid, tid }, from) => events.filter((e) => e.ph === 'X' && e.pid === pid && e.tid === tid && e.name === 'RunTask' && e.ts >= from).map((e) => e.dur / 1000);
