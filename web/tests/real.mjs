// Tests against the program itself: `view` on records in a temporary directory.
import { accessible, check, equal, overflows, see, settle } from './check.mjs';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { begin, goOn, LONG, MANY } from './records.mjs';

/** Signs in as a reader does who opens the printed address, and goes to a run by its name. */
const enter = async ({ page, address }) => {
  await page.goto(address);
  await see(page, 'math-large');
};
const openRun = async (context, name) => {
  await enter(context);
  await context.page.getByRole('link', { name, exact: true }).click();
};

/** How long frames take while something is done. */
const frames = async (page, act) => {
  await page.evaluate(() => {
    globalThis.frameTimes = [];
    let last = performance.now();
    const tick = (now) => { globalThis.frameTimes.push(now - last); last = now; if (globalThis.frameTimes.length < 2000) requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
  });
  await act();
  const times = await page.evaluate(() => globalThis.frameTimes.slice(1).sort((a, b) => a - b));
  const [half, late] = [0.5, 0.95].map((share) => times[Math.floor(times.length * share)]);
  check(half < 500, `frames take ${half} ms`);
  return `frames while scrolling: median ${half.toFixed(1)} ms, 95% below ${late.toFixed(1)} ms`;
};

export const realTests = [
  ['the printed address signs in, and the token leaves the address', async (context) => {
    await enter(context);
    check(!context.page.url().includes('token'), 'the token is not in the address');
    const token = /token=(.*)/.exec(context.address)[1];
    check(!context.requests.some((url) => url.includes(token)), 'the token is in a request');
    const policy = await context.page.evaluate(async () => (await fetch('/')).headers.get('content-security-policy'));
    check(policy.startsWith("default-src 'none'; script-src 'self'; style-src 'self'") && !/unsafe|\*|http:/.test(policy), `the policy: ${policy}`);
    await see(context.page, 'rl-documents');
    await context.page.reload();
    await see(context.page, 'math-large');
  }],
  ['without the token there is a form', async ({ page, address }) => {
    await page.goto(address.replace(/#.*/, ''));
    await page.getByLabel('Key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
  }, { expected: ['401', '403'] }],
  ['a run: turns, files, details', async (context) => {
    const { page } = context;
    await openRun(context, '20260301_101200');
    await see(page, 'Let me look at the data first.');
    await page.getByRole('link', { name: /^Files/ }).click();
    await see(page, 'answer.txt');
    await page.getByRole('link', { name: /totals.csv/ }).click();
    await page.getByRole('cell', { name: 'South, and islands' }).waitFor();
    await page.getByRole('link', { name: 'Details' }).click();
    await see(page, 'Protection');
  }],
  ['files changed at a turn', async (context) => {
    const { page } = context;
    await openRun(context, '20260301_101200');
    await see(page, 'Let me look');
    const changed = page.locator('.turn.current').getByRole('button', { name: /file changed/ });
    for (let turn = 1; turn <= 6 && (await changed.count()) === 0; turn++) {
      await page.keyboard.press('j');
      await page.locator(`.turn.current[aria-label="Turn ${turn}"]`).waitFor();
      await settle(page);
    }
    await changed.click();
    await page.locator('.change').first().waitFor();
  }],
  ['previews of sound, video, documents and pages', async (context) => {
    const { page } = context;
    // A video of the browser's own making.
    await page.goto(context.address);
    const video = await page.evaluate(async () => {
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [64, 48];
      const pen = canvas.getContext('2d');
      const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: 'video/webm' });
      const parts = [];
      recorder.ondataavailable = (e) => parts.push(e.data);
      const done = new Promise((stop) => { recorder.onstop = stop; });
      recorder.start();
      for (let i = 0; i < 12; i++) {
        pen.fillStyle = `hsl(${i * 30} 80% 50%)`;
        pen.fillRect(0, 0, 64, 48);
        await new Promise(requestAnimationFrame);
      }
      recorder.stop();
      await done;
      return [...new Uint8Array(await new Blob(parts).arrayBuffer())];
    });
    check(video.length > 100, 'no video was made');
    writeFileSync(join(context.records, '20260301_101200/files/film.webm'), Buffer.from(video));
    await openRun(context, '20260301_101200');
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.getByRole('link', { name: /tone.wav/ }).click();
    await page.waitForFunction(() => document.querySelector('audio')?.readyState >= 1 && Math.abs(document.querySelector('audio').duration - 1) < 0.1);
    await page.getByRole('link', { name: /film.webm/ }).click();
    await page.waitForFunction(() => document.querySelector('video')?.readyState >= 1 && document.querySelector('video').videoWidth === 64);
    const answer = page.waitForResponse((r) => r.url().includes('report.pdf'));
    await page.getByRole('link', { name: /report.pdf/ }).click();
    const pdf = await answer;
    equal(pdf.headers()['content-type'], 'application/pdf', 'the type of a document');
    equal(pdf.status(), 200, 'the document');
    await page.locator('iframe.frame[title*="report.pdf"]').waitFor();
    await page.getByRole('link', { name: /page.html/ }).click();
    const frame = page.locator('iframe.frame[sandbox=""]');
    await frame.waitFor();
    await page.frameLocator('iframe.frame').getByRole('heading', { name: 'A page of the model' }).waitFor();
    await page.getByRole('button', { name: 'Source' }).click();
    await see(page, 'parent.pwned=9');
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what the files did');
  }, { expected: ['Content Security Policy', 'violates', 'ERR_', 'sandboxed', 'Blocked script', 'Refused to refresh'] }],
  ['a benchmark: attempts, filter, next attempt', async (context) => {
    const { page } = context;
    await openRun(context, 'math-large');
    await see(page, '40 attempts');
    await page.getByRole('link', { name: 'Summary' }).click();
    await see(page, 'pass@k');
    await page.getByRole('link', { name: 'Attempts' }).click();
    await page.getByRole('link', { name: 'aime25-1', exact: true }).click();
    await see(page, 'Let me look');
    await page.keyboard.press('n');
    await page.waitForFunction(() => !document.querySelector('h1')?.textContent?.endsWith('aime25-1'));
  }],
  ['two benchmarks are compared, down to columns of turns', async (context) => {
    const { page } = context;
    await enter(context);
    await page.getByLabel('Choose math-small to compare').check();
    await page.getByLabel('Choose math-large to compare').check();
    await page.getByRole('link', { name: 'Compare', exact: true }).last().click();
    await see(page, 'Difference');
    await see(page, '40 of 40 problems');
    await page.getByRole('button', { name: 'Disagreements' }).click();
    await page.waitForFunction(() => /^[1-9]\d? of 40/.test(document.querySelector('.table-tools [role=status]')?.textContent ?? '') && !document.querySelector('[role=status]')?.textContent?.startsWith('40'));
    await page.getByRole('link', { name: 'Side by side' }).first().click();
    await page.locator('.side-cell .call').first().waitFor();
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    await page.locator('.side-cell.differs ins.word').first().waitFor();
  }],
  ['training: curves and groups', async (context) => {
    const { page } = context;
    await openRun(context, 'rl-documents');
    await page.locator('.chart canvas').first().waitFor();
    await page.getByRole('link', { name: 'Groups' }).click();
    await see(page, 'doc-0');
    equal(await page.locator('.group').first().locator('.member').count(), 4, 'members of a group');
    await page.locator('.member').first().click();
    await see(page, 'Let me look');
  }],
  ['a run is followed while its file grows', async (context) => {
    const { page } = context;
    begin(context.records);
    await openRun(context, 'live');
    await see(page, 'Let me look');
    const more = goOn(context.records, 150);
    await page.keyboard.press('G');
    await page.locator('.outline-row', { hasText: 'submit' }).waitFor({ timeout: 15_000 });
    await more;
  }],
  ['a hostile run does nothing', async (context) => {
    const { page } = context;
    await openRun(context, 'hostile');
    await see(page, '<script>window.pwned=1');
    await page.locator('.hidden-char', { hasText: 'RLO' }).first().waitFor();
    const changed = page.locator('.turn[aria-label="Turn 1"]').getByRole('button', { name: /files? changed/ });
    await changed.click();
    await page.locator('.turn[aria-label="Turn 1"] .change').first().waitFor();
    for (const button of await page.getByRole('button', { name: /Show all/ }).all()) await button.click().catch(() => undefined);
    await page.keyboard.press('G');
    await page.getByRole('button', { name: /Load the whole text/ }).first().click();
    await settle(page);
    await page.getByRole('link', { name: 'Details' }).click();
    await see(page, 'Protection');
    // What the frame of the model's page asks the server for, besides itself.
    const asked = [];
    page.on('request', (request) => request.frame() !== page.mainFrame() && !request.url().includes('page.html') && request.url().includes('/page/') && asked.push(request.url()));
    page.on('requestfailed', (request) => request.failure()?.errorText === 'csp' && asked.includes(request.url()) && asked.splice(asked.indexOf(request.url()), 1));
    await page.goto(context.address.replace(/#.*/, '#/runs'));
    await page.getByRole('link', { name: '20260301_101200', exact: true }).click();
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.getByRole('link', { name: /page.html/ }).click();
    await page.frameLocator('iframe.frame').getByRole('heading', { name: 'A page of the model' }).waitFor();
    await settle(page);
    equal(asked.join(' '), '', 'requests of the frame');
    await page.getByRole('link', { name: /laughs.svg/ }).click();
    await settle(page);
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what scripts did');
    equal(await page.evaluate(() => document.querySelectorAll('main script, main style, main object, main embed, main [onerror], main [onload]').length), 0, 'elements that act');
  }, { expected: ['Content Security Policy', 'violates', 'ERR_', 'sandboxed', 'Blocked script', 'Refused to refresh'] }],
  ['trajectories of the reference', async (context) => {
    const { page } = context;
    await enter(context);
    const link = page.getByRole('link', { name: /^poster/ });
    if ((await link.count()) === 0) return 'none beside the workspace';
    await link.click();
    await see(page, 'Poster Specifications');
    await page.locator('.turn').first().waitFor();
  }],
  ['phone width and accessibility of the main views', async (context) => {
    const { page } = context;
    for (const name of ['20260301_101200', 'math-large', 'rl-documents']) {
      await openRun(context, name);
      await settle(page);
      check(!(await overflows(page)), `${name} is too wide`);
      await accessible(page, name);
    }
  }, { viewport: { width: 390, height: 844 } }],
  [`${LONG - 1} events: opens and scrolls`, async (context) => {
    const { page } = context;
    await enter(context);
    const started = performance.now();
    await page.getByRole('link', { name: 'long', exact: true }).click();
    await page.locator('.turn .call').first().waitFor({ timeout: 30_000 });
    const first = Math.round(performance.now() - started);
    await page.locator('.turns').hover();
    const note = await frames(page, async () => { for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 240); });
    await page.keyboard.press('G');
    await page.locator(`.turn[aria-label="Turn ${LONG >> 1}"] .call`).waitFor();
    check((await page.locator('.turns .virtual-row').count()) < 40, 'few rows are drawn');
    const paint = await page.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1));
    check(paint > 0 && paint < 10_000 && first < 30_000, `first paint ${paint} ms, first turn ${first} ms`);
    return `first paint ${paint} ms; first turn after ${first} ms; ${note}`;
  }, { alone: true }],
  [`${MANY} attempts: opens, filters and scrolls`, async (context) => {
    const { page } = context;
    await enter(context);
    const started = performance.now();
    await page.getByRole('link', { name: 'many', exact: true }).click();
    await see(page, `${MANY.toLocaleString('en')} attempts`);
    await page.locator('.virtual-row a.cover').first().waitFor();
    const first = Math.round(performance.now() - started);
    await page.getByRole('combobox').first().selectOption('passed');
    await page.waitForFunction((all) => new RegExp(` of ${all}`).test(document.querySelector('[role=status]')?.textContent ?? ''), MANY.toLocaleString('en'));
    await page.locator('.virtual').hover();
    const note = await frames(page, async () => { for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 400); });
    await page.locator('.virtual').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    await page.waitForFunction((least) => Number([...document.querySelectorAll('.virtual-row')].at(-1)?.dataset.index) > least && !document.querySelector('.pending'), MANY / 5);
    check((await page.locator('.virtual-row').count()) < 80, 'few rows are drawn');
    check(first < 20_000, `the first rows took ${first} ms`);
    return `first rows after ${first} ms; ${note}`;
  }, { alone: true }],
  ['export: one file from the program', async (context) => {
    if (!context.exported) return 'not written';
    await context.page.goto(`file://${context.exported}`);
    await see(context.page, 'Let me look at the data first.');
  }],
];
