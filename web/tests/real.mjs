// Tests against the program itself: `view` on records in a temporary directory.
import { accessible, answersKeys, check, equal, overflows, see, settle } from './check.mjs';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { begin, goOn, LONG, MANY } from './records.mjs';
import { traced } from './trace.mjs';

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

/** Waits until something has been drawn in the color of the made-up document. */
const drawn = async (page, selector) => {
  const blank = await page.context().newPage();
  const count = (data) => blank.evaluate(async (base64) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))]));
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d');
    pen.drawImage(image, 0, 0);
    const { data: pixels } = pen.getImageData(0, 0, image.width, image.height);
    let found = 0;
    for (let i = 0; i < pixels.length; i += 4) if (Math.abs(pixels[i] - 204) < 12 && Math.abs(pixels[i + 1] - 26) < 12 && Math.abs(pixels[i + 2] - 128) < 12) found++;
    return found;
  }, data);
  for (const end = Date.now() + 10_000; Date.now() < end;) {
    if ((await count((await page.locator(selector).screenshot()).toString('base64'))) > 200) return blank.close();
  }
  throw new Error('the document is not drawn');
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
    // The document opens a message when it is shown; it is not shown before the reader asks.
    const messages = [];
    page.on('dialog', (dialog) => messages.push(dialog.message()));
    const answer = page.waitForResponse((r) => r.url().includes('report.pdf'));
    await page.getByRole('link', { name: /report.pdf/ }).click();
    const show = page.getByRole('button', { name: 'Show the document' });
    await show.waitFor();
    await settle(page);
    equal(await page.locator('iframe').count() + messages.length, 0, 'frames and messages before the document is shown');
    await show.click();
    const pdf = await answer;
    equal(pdf.headers()['content-type'], 'application/pdf', 'the type of a document');
    equal(pdf.status(), 200, 'the document');
    await page.locator('iframe.frame[title*="report.pdf"]').waitFor();
    await drawn(page, 'iframe.frame');
    await page.getByRole('link', { name: /page.html/ }).click();
    const frame = page.locator('iframe.frame[sandbox=""]');
    await frame.waitFor();
    await page.frameLocator('iframe.frame').getByRole('heading', { name: 'A page of the model' }).waitFor();
    await page.getByRole('button', { name: 'Source' }).click();
    await see(page, 'parent.pwned=9');
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what the files did');
  }, { expected: ['a dialog: 1', 'Content Security Policy', 'violates', 'ERR_', 'sandboxed', 'Blocked script', 'Refused to refresh'] }],
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
    for (const button of await page.getByRole('button', { name: /Show all/ }).all()) await button.click({ timeout: 1000 }).catch(() => undefined);
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
    // The same page as a document of its own, with the reader's session.
    const own = new URL(await page.locator('iframe.frame').getAttribute('src'), page.url()).href;
    const tab = await page.context().newPage();
    const fromTab = [];
    tab.on('request', (request) => request.url() !== own && fromTab.push(request.url()));
    tab.on('requestfailed', (request) => request.failure()?.errorText === 'csp' && fromTab.splice(fromTab.indexOf(request.url()), 1));
    await tab.goto(own);
    await tab.getByRole('heading', { name: 'A page of the model' }).waitFor();
    await tab.waitForTimeout(300);
    equal(await tab.evaluate(() => [globalThis.pwned, globalThis.origin].join()), ',null', 'what the page did, and its origin');
    equal(fromTab.join(' '), '', 'requests of the page');
    await tab.close();
    await page.getByRole('link', { name: /laughs.svg/ }).click();
    await answersKeys(page);
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what scripts did');
    equal(await page.evaluate(() => document.querySelectorAll('main script, main style, main object, main embed, main [onerror], main [onload]').length), 0, 'elements that act');
  }, { expected: ['Content Security Policy', 'violates', 'ERR_', 'sandboxed', 'Blocked script', 'Refused to refresh'] }],
  ['an exported hostile run does nothing', async ({ page, exportOf, requests }) => {
    await page.goto(exportOf('hostile'));
    await see(page, '<script>window.pwned=1');
    for (const button of await page.getByRole('button', { name: /Show all|changed/ }).all()) await button.click({ timeout: 1000 }).catch(() => undefined);
    await page.keyboard.press('G');
    await page.locator('.turn[aria-label="Turn 2"]').waitFor();
    for (const button of await page.getByRole('button', { name: /Show all/ }).all()) await button.click({ timeout: 1000 }).catch(() => undefined);
    for (const tab of ['Files', 'Details']) {
      await page.getByRole('link', { name: new RegExp(`^${tab}`) }).click();
      await settle(page);
    }
    await see(page, 'Protection');
    await page.getByRole('link', { name: 'Runs' }).first().click();
    await page.getByRole('link', { name: 'hostile' }).first().waitFor();
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what scripts did');
    equal(await page.evaluate(() => document.scripts.length), 2, 'scripts: the data and the program');
    equal(await page.evaluate(() => document.querySelectorAll('main script, main style, main iframe, main object, main embed, main [onerror], main [onload], a[href^="javascript"]').length), 0, 'elements that act');
    equal(requests.filter((url) => !/^(file|data|blob):/.test(url)).join(' '), '', 'requests of the file');
  }, { expected: ['Content Security Policy', 'violates'] }],
  ['trajectories of the reference: all three', async (context) => {
    const { page } = context;
    await enter(context);
    const names = ['chemical', 'math', 'poster'];
    await page.getByLabel('Search runs').fill('reference');
    await page.waitForFunction(() => /of/.test(document.querySelector('.head .soft')?.textContent ?? ''));
    if ((await page.locator('a.cover').count()) === 0) return { skip: 'there are no trajectories beside the workspace' };
    const turns = [];
    for (const name of names) {
      await page.goto(`${context.address.replace(/#.*/, '')}#/runs?q=${name}.json`);
      await page.getByRole('link', { name: `${name}.json`, exact: true }).click();
      await page.locator('.turn .call').first().waitFor();
      await page.keyboard.press('G');
      await page.locator('.end .badge, .end', { hasText: /./ }).first().waitFor();
      await page.locator('.turn.current .call').first().waitFor();
      const last = await page.locator('.turn.current').getAttribute('aria-label');
      check(!(await page.getByText('cannot be shown').count()), `${name} is shown`);
      turns.push(`${name} ${last.toLowerCase()}`);
    }
    return `last turns: ${turns.join(', ')}`;
  }],
  ['a log of Inspect is opened: one sample, two, none', async (context) => {
    const { page } = context;
    await openRun(context, 'one-sample.eval');
    await page.waitForURL(/attempts\/q1%2C1/);
    await see(page, 'I compute it.');
    await see(page, 'A calculator is at hand.');
    await page.locator('.turn', { hasText: 'The answer is 4.' }).waitFor();
    await openRun(context, 'two-samples.eval');
    await see(page, '2 attempts');
    await page.getByRole('link', { name: 'q2', exact: true }).click();
    await see(page, 'I compute it.');
    await openRun(context, 'no-samples.eval');
    await see(page, 'No attempts yet');
  }],
  ['fields of wrong types and a resumed episode', async (context) => {
    const { page } = context;
    await openRun(context, 'wrong');
    await see(page, 'Fields of wrong types.');
    const outline = page.locator('.outline-row');
    await outline.first().waitFor();
    const shown = await outline.count();
    const end = page.locator('.turn.current', { hasText: 'the end' });
    // A key that is pressed before the one before it was drawn may go to the same turn.
    for (let i = 0; i < 3 * shown && (await end.count()) === 0; i++) {
      await page.keyboard.press('j');
      await page.locator('.outline-row.current').nth(0).waitFor();
      await settle(page);
    }
    await end.waitFor();
    for (const tab of ['Files', 'Details']) {
      await page.getByRole('link', { name: new RegExp(`^${tab}`) }).click();
      await settle(page);
    }
    equal(await page.getByText('cannot be shown').count() + await page.getByText('Cannot show this').count(), 0, 'rows and views that failed');
    await openRun(context, 'resumed');
    await see(page, 'This is one.');
    for (const turn of ['Turn 1', 'Turn 2, undone', 'Turn 3, undone', 'Turn 2', 'Turn 3', 'Turn 4']) {
      await page.keyboard.press('j');
      await page.locator(`.turn.current[aria-label="${turn}"]`).waitFor();
    }
    for (const [turn, file] of [['Turn 2, undone', 'undone-two.txt'], ['Turn 2', 'two.txt']]) {
      const row = page.locator(`.turn[aria-label="${turn}"]`);
      await row.getByRole('button', { name: '1 file changed' }).click();
      await row.locator('.change-head', { hasText: `/testbed/${file}` }).waitFor();
      await row.locator('.diff-gap', { hasText: '@@ -0,0 +1 @@' }).waitFor();
    }
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
    await page.locator('.turn .call').first().waitFor({ timeout: 60_000 });
    const first = Math.round(performance.now() - started);
    await page.locator('.turns').hover();
    const note = await frames(page, async () => { for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 240); });
    await page.keyboard.press('G');
    await page.locator(`.turn[aria-label="Turn ${LONG >> 1}"] .call`).waitFor();
    check((await page.locator('.turns .virtual-row').count()) < 40, 'few rows are drawn');
    const paint = await page.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1));
    check(paint > 0 && paint < 10_000 && first < 60_000, `first paint ${paint} ms, first turn ${first} ms`);
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
  [`a trace of ${LONG - 1} events: paint, scrolling, jumps`, async (context) => {
    await enter(context);
    const link = context.page.getByRole('link', { name: 'long', exact: true });
    const { note, longest } = await traced(context, await link.getAttribute('href'), 'trace-300000', '.turn .call', async (tab, drawn) => {
      await tab.locator('.turns').hover();
      for (let i = 0; i < 300; i++) await tab.mouse.wheel(0, 240);
      for (const share of [0.5, 0.99]) {
        await tab.locator('.turns').evaluate((el, s) => { el.scrollTop = s * (el.scrollHeight - el.clientHeight); }, share);
        await drawn(() => tab.waitForFunction((near) => Math.abs(Number(document.querySelector('.turns .virtual-row')?.dataset.index) - near) < 3000 && document.querySelector('.turns .turn .call') && !document.querySelector('.turns .ghost-turn'), (LONG >> 1) * share));
      }
    });
    check(longest < 2000, `a task takes ${longest} ms`);
    return note;
  }, { alone: true }],
  [`a trace of ${MANY} attempts: paint, scrolling, jumps`, async (context) => {
    await enter(context);
    const link = context.page.getByRole('link', { name: 'many', exact: true });
    const { note, longest } = await traced(context, await link.getAttribute('href'), 'trace-10000', '.virtual-row a.cover', async (tab, drawn) => {
      await tab.locator('.virtual').hover();
      for (let i = 0; i < 300; i++) await tab.mouse.wheel(0, 240);
      for (const share of [0.5, 0.99]) {
        await tab.locator('.virtual').evaluate((el, s) => { el.scrollTop = s * (el.scrollHeight - el.clientHeight); }, share);
        await drawn(() => tab.waitForFunction((near) => Math.abs(Number(document.querySelector('.virtual-row')?.dataset.index) - near) < 300 && document.querySelector('.virtual-row a.cover') && !document.querySelector('.pending'), MANY * share));
      }
    });
    check(longest < 2000, `a task takes ${longest} ms`);
    return note;
  }, { alone: true }],
  ['export: a run', async ({ page, exportOf }) => {
    await page.goto(exportOf('20260301_101200'));
    await see(page, 'Let me look at the data first.');
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.getByRole('link', { name: /totals.csv/ }).click();
    await page.getByRole('cell', { name: 'South, and islands' }).waitFor();
  }],
  ['export: what has one attempt opens', async ({ page, exportOf }) => {
    await page.goto(exportOf('math-single'));
    await see(page, '1 attempt');
    await page.locator('a.cover').first().click();
    await see(page, 'Let me look at the data first.');
    await page.goto(exportOf('one-sample.eval'));
    await see(page, 'I compute it.');
  }],
  ['export: training with its curves, steps and groups', async ({ page, exportOf }) => {
    await page.goto(exportOf('rl-documents'));
    await page.locator('.chart canvas').first().waitFor();
    await page.getByRole('link', { name: 'Groups' }).click();
    await page.locator('.group').first().waitFor();
    equal(await page.locator('.step-row').count(), 3, 'steps');
    await page.locator('.step-row').nth(1).click();
    await page.waitForURL(/step=2/);
    await page.waitForFunction(() => document.querySelectorAll('.group').length === 2);
    await page.locator('.member').first().click();
    await see(page, 'Let me look at the data first.');
    await page.getByRole('link', { name: 'Training', exact: true }).click();
    await page.locator('.chart canvas').first().waitFor();
  }],
  ['export: runs are compared in one file', async ({ page, exportOf }) => {
    await page.goto(exportOf('math-small', 'math-large', 'math-single'));
    await page.getByRole('link', { name: 'Compare', exact: true }).click();
    for (const name of ['math-large', 'math-small']) await page.locator('.picks label', { hasText: name }).click();
    await page.getByRole('link', { name: 'Compare 2 runs' }).click();
    await see(page, 'mcnemar');
    await see(page, '40 of 40 problems');
    await page.getByRole('button', { name: 'Lost' }).click();
    await page.waitForFunction(() => /^[1-9]\d? of 40/.test(document.querySelector('.table-tools [role=status]')?.textContent ?? ''));
    await page.getByRole('link', { name: 'Side by side' }).first().click();
    await page.locator('.side-cell .call').first().waitFor();
    await page.getByRole('link', { name: 'Compare', exact: true }).first().click();
    await page.locator('.picks').waitFor();
    for (const name of ['math-single', 'math-large', 'math-small']) await page.locator('.picks label', { hasText: name }).click();
    await page.getByRole('link', { name: 'Compare 3 runs' }).click();
    await see(page, '40 of 40 problems');
    equal(await page.locator('.statistics tbody').first().locator('tr').count() >= 2, true, 'a row for each compared run');
  }],
  ['export: turns that were left out are said', async ({ page, exportOf }) => {
    const file = exportOf('long');
    await page.goto(file);
    await page.locator('.turn .call').first().waitFor();
    const turns = LONG >> 1;
    await page.getByRole('link', { name: `Turns ${turns.toLocaleString('en')}` }).waitFor();
    await page.goto(`${file}${new URL(page.url()).hash}?turn=4999`);
    await page.locator('.turn.current[aria-label="Turn 4999"]').waitFor();
    const gap = page.getByText(/^[\d,]+ turns omitted from this file$/);
    await gap.waitFor();
    const omitted = Number((await gap.textContent()).replace(/[^\d]/g, ''));
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    const next = page.locator('.turn.current');
    await page.waitForFunction(() => !document.querySelector('.turn.current[aria-label="Turn 4999"]'));
    const number = async () => Number((await next.getAttribute('aria-label')).slice(5));
    while ((await number()) < 5002) await page.keyboard.press('j');
    check((await number()) > 5000 + omitted - 5, `after the gap comes turn ${await number()}, ${omitted} are left out`);
    await next.locator('.call').waitFor();
    await settle(page);
    await page.keyboard.press('G');
    await page.locator(`.turn.current[aria-label="Turn ${turns}"] .call`).waitFor();
    return `${omitted} of ${turns} turns`;
  }, { alone: true }],
];
