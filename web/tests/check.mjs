// What several tests check.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

/** Fails unless a condition holds. */
export function check(condition, message) {
  if (!condition) throw new Error(message);
}

/** Fails unless two values are equal. */
export function equal(found, expected, what) {
  if (found !== expected) throw new Error(`${what}: expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`);
}

/** Waits until a text is in view. */
export async function see(page, text, options = {}) {
  await page.getByText(text, { exact: false, ...options }).first().waitFor();
}

/** Waits until what was asked for is drawn: two frames for the page to ask, then nothing that is still loading. */
export async function settle(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForFunction(() => !document.querySelector('.loading, .ghost-turn'));
}

/** Fails unless the page draws and answers a key within two seconds. */
export async function answersKeys(page) {
  await settle(page);
  const started = performance.now();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const spent = Math.round(performance.now() - started);
  check(spent < 2000, `the answer to a key took ${spent} ms`);
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Faults that axe-core calls serious or critical. */
export async function accessible(page, where) {
  // The page's policy forbids scripts; the debugger's own evaluation is not subject to it.
  await page.evaluate(AXE);
  const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  const bad = result.violations.filter((v) => ['serious', 'critical'].includes(v.impact));
  check(bad.length === 0, `${where}: ${bad.map((v) => `${v.id} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary?.split('\n')[1] ?? ''}`).join('; ')}`);
}

/** Fails unless the rows of a list follow each other without gaps and overlaps. */
export async function contiguous(page, list, where) {
  const wrong = () => page.evaluate((selector) => {
    const boxes = [...document.querySelectorAll(`${selector} .virtual-row`)].sort((a, b) => a.dataset.index - b.dataset.index).map((row) => [row.dataset.index, row.getBoundingClientRect()]);
    return boxes.slice(1).filter(([, box], i) => Math.abs(box.top - boxes[i][1].bottom) > 1).map(([index, box]) => `row ${index} at ${box.top}`).join();
  }, list);
  await page.waitForFunction(() => !document.querySelector('.ghost-turn'));
  const found = await wrong();
  check(found === '', `${where}: ${found}`);
}

/** Whether something is wider than the window. */
export const overflows = (page) => page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1);
