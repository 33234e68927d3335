// Tests of the page where something goes wrong, and of records that are not what they should be.
import { check, equal, see, settle } from './check.mjs';

const RUN = 'math-qwen3-32b';
const EPISODE = `#/runs/${RUN}/attempts/math%2Csandbox%2Caime25-3%2C0`;
const attempts = (...ids) => ids.map(([run, id]) => `e=${encodeURIComponent(`${run}/${encodeURIComponent(id)}`)}`).join('&');

/** Answers a request with an error. */
const refuse = (status, message = 'the disk cannot be read') => (route) => route.fulfill({ status, contentType: 'application/json', body: JSON.stringify({ error: { code: 'internal', message } }) });
/** Answers a request with a changed answer, unless the page was closed meanwhile. */
const change = (edit) => async (route) => {
  try {
    const response = await route.fetch();
    const json = await response.json();
    edit(json);
    await route.fulfill({ response, json });
  } catch (error) {
    if (!/disposed|closed/.test(error.message)) throw error;
  }
};
const label = (page) => page.locator('.turn.current').getAttribute('aria-label');
const press = async (page, key, turn) => {
  await page.keyboard.press(key);
  await page.locator(`.turn.current[aria-label="${turn}"]`).waitFor();
  equal(await page.locator('.turn.current').count(), 1, `current turns at ${turn}`);
};
/** A drop of a file on an element; whether the browser would act on it. */
const dropped = (page, selector) => page.evaluate((at) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File(['x'], 'x.txt'));
  const drop = (kind) => document.querySelector(at).dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  return [drop('dragover'), drop('drop')].some(Boolean);
}, selector);

export const faultTests = [
  ['terminal: another theme keeps the shell', async ({ page, open }) => {
    const sockets = [];
    page.on('websocket', (socket) => sockets.push(socket));
    await open('#/terminal?sandbox=i3k9x2m4');
    await see(page, 'user@sandbox');
    await page.locator('.xterm-helper-textarea').focus();
    await page.keyboard.type('half a li');
    const green = () => page.locator('.xterm-rows span', { hasText: 'user@sandbox' }).evaluate((el) => getComputedStyle(el).color);
    const before = await green();
    await page.getByRole('button', { name: /Theme: system/ }).click();
    await page.getByRole('button', { name: /Theme: light/ }).click();
    await page.waitForFunction((old) => getComputedStyle([...document.querySelectorAll('.xterm-rows span')].find((el) => el.textContent.includes('user'))).color !== old, before);
    await page.locator('.xterm-helper-textarea').focus();
    await page.keyboard.type('ne\n');
    await page.waitForFunction(() => document.querySelector('.xterm-rows')?.textContent?.includes('you typed: half a line'));
    equal(sockets.length, 1, 'connections');
    equal(sockets[0].isClosed(), false, 'the connection was closed');
  }],
  ['terminal: why it ended is said', async ({ page, open }) => {
    await open('#/terminal?sandbox=broken');
    await see(page, 'the shell cannot start: <b>no space left</b>');
    await page.getByRole('button', { name: 'Connect again' }).click();
    await see(page, 'the shell cannot start');
    await open('#/terminal?sandbox=gone');
    await page.getByRole('alert').getByText('there is no').waitFor();
  }, { expected: ['WebSocket', '404'] }],
  ['fields of wrong types are shown as what they are', async ({ page, open }) => {
    await open('#/runs/wrong/attempts/0');
    await see(page, 'Fields of wrong types.');
    await page.getByText('1 message before the first turn').click();
    await see(page, 'not a list');
    const texts = ['{"type":"audio"}', 'x', 'arguments that are null', 'unnamed tool', '{"of":"an object"}', 'the end'];
    for (const [i, text] of texts.entries()) {
      await press(page, 'j', `Turn ${i + 1}`);
      await page.locator('.turn.current', { hasText: text }).waitFor();
    }
    await page.getByLabel('Search all texts').fill('nothing has this');
    await see(page, '0 of 6 turns');
    await open('#/runs/wrong/attempts/0?tab=details');
    await see(page, 'Protection');
    equal(await page.getByText('cannot be shown').count() + await page.getByText('Cannot show this').count(), 0, 'rows and views that failed');
  }],
  ['what cannot be drawn leaves the rest of the page', async ({ page, open }) => {
    await page.route('**/turns?*', change((answer) => { answer.turns[1].calls = null; }));
    await open(EPISODE);
    await see(page, 'This row cannot be shown');
    await see(page, 'Let me look at the data first.');
    await page.route(`**/page/api/runs/${RUN}`, change((answer) => { answer.problems = 5; }));
    await open(`#/runs/${RUN}`);
    await page.getByRole('alert').getByText('Cannot show this').waitFor();
    await page.unroute(`**/page/api/runs/${RUN}`);
    await page.getByRole('button', { name: 'Try again' }).click();
    await see(page, '60 attempts');
  }],
  ['logs with one sample, without one, and with several', async ({ page, open }) => {
    await open('#/runs?q=inspect');
    await page.getByRole('link', { name: 'inspect-0.eval' }).click();
    await page.waitForURL(/attempts\/q1%2C1/);
    await page.locator('.turn').first().waitFor();
    await page.keyboard.press('u');
    await page.waitForURL((url) => url.hash === '#/runs');
    await open('#/runs?q=inspect');
    await page.getByRole('link', { name: 'inspect-1.eval' }).click();
    await see(page, 'No attempts yet');
    await open('#/runs?q=inspect');
    await page.getByRole('link', { name: 'inspect-2.eval' }).click();
    await see(page, '2 attempts');
    await page.getByRole('link', { name: 'q2', exact: true }).click();
    await page.locator('.turn').first().waitFor();
    await page.getByRole('navigation', { name: 'Where this is' }).getByRole('link', { name: 'inspect-2.eval' }).click();
    await see(page, '2 attempts');
  }],
  ['a resumed episode: turns with the same number are different turns', async ({ page, open }) => {
    await open('#/runs/resumed/attempts/0');
    await see(page, 'This is one.');
    const turns = ['Turn 1', 'Turn 2, undone', 'Turn 3, undone', 'Turn 2', 'Turn 3', 'Turn 4'];
    for (const turn of turns) {
      await press(page, 'j', turn);
      equal(await page.locator('.outline-row.current').count(), 1, `rows of the outline at ${turn}`);
    }
    for (const turn of turns.slice(1, -1).reverse()) await press(page, 'k', turn);
    const undone = page.url();
    check(undone.includes('turn=2') && undone.includes('at=2'), `the address tells it from the other: ${undone}`);
    await page.locator('.turn.current').getByRole('button', { name: '1 file changed' }).click();
    await page.locator('.turn.current .change', { hasText: 'undone-two.txt' }).waitFor();
    equal(await page.locator('.turn.current .fork').count(), 0, 'forks of an undone turn');
    await page.goto('about:blank');
    await page.goto(undone);
    await page.locator('.turn.current').waitFor();
    equal(await label(page), 'Turn 2, undone', 'the turn of the address');
    await page.goto('about:blank');
    await open('#/runs/resumed/attempts/0?turn=3');
    await page.locator('.turn.current', { hasText: 'This is three.' }).waitFor();
  }],
  ['try it: one start for several presses, none without a task or with too much', async ({ page, open, asked }) => {
    let posts = 0;
    await page.route('**/v1/episodes', async (route) => {
      posts++;
      await new Promise((done) => setTimeout(done, 200));
      await route.continue();
    });
    await open('#/try');
    await page.getByLabel('Task').focus();
    await page.keyboard.press('Control+Enter');
    await page.getByLabel('Task').fill('Count to three.');
    await page.getByLabel('Files', { exact: true }).setInputFiles({ name: 'big.bin', mimeType: 'application/octet-stream', buffer: Buffer.alloc(7 << 20) });
    await see(page, 'too large');
    await page.getByLabel('Task').press('Control+Enter');
    check(await page.getByRole('button', { name: 'Start' }).isDisabled(), 'the button is disabled');
    await settle(page);
    equal(posts, 0, 'starts without a task or with too much');
    await page.getByRole('button', { name: 'Remove big.bin' }).click();
    // Both presses in one task of the page, before anything is drawn.
    await page.evaluate(() => {
      const field = document.querySelector('textarea');
      for (let i = 0; i < 2; i++) field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', ctrlKey: true, bubbles: true }));
    });
    await page.getByLabel('Task').press('Control+Enter').catch(() => undefined);
    await page.waitForURL(/attempts\/ep_1/);
    equal(posts, 1, 'starts');
    check(asked.includes('POST /v1/episodes'), 'it was started');
  }],
  ['a file that is dropped beside the form does not replace the page', async ({ page, open }) => {
    for (const hash of ['#/try', '#/runs']) {
      await open(hash);
      await settle(page);
      equal(await dropped(page, 'main'), false, `the browser would open what is dropped at ${hash}`);
    }
  }],
  ['files: a record that keeps none does not say that there were none', async ({ page, open }) => {
    await open(`${EPISODE}?tab=files`);
    await see(page, 'does not keep the files');
    equal(await page.getByText('left no files').count() + await page.getByText('left nothing').count(), 0, 'claims about the files');
  }],
  ['side by side: a column that fails says why, and is asked for again', async ({ page, open }) => {
    const [first, second] = [['math-qwen3-4b', 'math,sandbox,aime25-1,0'], [RUN, 'math,sandbox,aime25-1,0']];
    await page.route(`**/runs/${RUN}/attempts/math%2Csandbox%2Caime25-1%2C0`, refuse(500));
    await open(`#/side?${attempts(first, second)}`);
    await page.locator('.side-head').nth(1).getByText('the disk cannot be read').waitFor();
    await page.locator('.side-cell .call').first().waitFor();
    await page.unrouteAll();
    await page.locator('.side-head').nth(1).getByRole('button', { name: 'Try again' }).click();
    await page.locator('.side-cell:nth-child(2) .call').first().waitFor();
    equal(await page.getByText('the disk cannot be read').count(), 0, 'errors that are over');
  }, { expected: ['500'] }],
  ['episode: parts that fail are asked for again, by itself and by a button', async ({ page, open }) => {
    let failures = 0;
    await page.route('**/attempts/*/events?*', (route) => (failures++ < 2 ? refuse(503)(route) : route.continue()));
    await open(EPISODE);
    await page.getByRole('alert').getByText('the disk cannot be read').waitFor();
    await see(page, 'Let me look at the data first.');
    equal(await page.getByText('the disk cannot be read').count(), 0, 'errors that are over');
    check(failures > 2, `asked ${failures} times`);
    // What will not pass by itself is left to the reader.
    await page.unrouteAll();
    await page.route('**/attempts/*/events?*', refuse(404));
    await page.goto('about:blank');
    await open(EPISODE);
    await page.getByRole('alert').getByText('the disk cannot be read').waitFor();
    await page.unrouteAll();
    await page.getByRole('button', { name: 'Try again' }).click();
    await see(page, 'Let me look at the data first.');
  }, { expected: ['503', '404'] }],
  ['a stream that is refused is asked for again', async ({ page, open }) => {
    let refused = 0;
    await page.route('**/page/api/changes', (route) => (refused++ < 1 ? refuse(503)(route) : route.continue()));
    await open('#/runs');
    await page.getByText('connection lost').waitFor();
    const bar = page.getByRole('row', { name: /ifbench/ }).getByRole('progressbar');
    const before = Number(await bar.getAttribute('aria-valuenow'));
    await page.waitForFunction((n) => Number(document.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow')) > n, before);
    await page.getByText('connection lost').waitFor({ state: 'detached' });
    // The same for a running episode, which goes on where it was.
    refused = 0;
    await page.route('**/events/stream?*', (route) => (refused++ < 1 ? refuse(503)(route) : route.continue()));
    await open('#/runs/live/attempts/0');
    await page.getByText('connection lost').waitFor();
    await page.locator('.outline-row', { hasText: 'submit' }).waitFor({ timeout: 15_000 });
    equal(await page.locator('.outline-row').count(), 6, 'turns in the outline');
  }, { expected: ['503'] }],
  ['what changed while the connection was lost is read again', async ({ page, open }) => {
    let streams = 0;
    let name = 'math-qwen3-4b';
    await page.route('**/page/api/changes', (route) => (streams++ < 1 ? route.fulfill({ contentType: 'text/event-stream', body: 'retry: 700\n\n' }) : route.continue()));
    await page.route('**/page/api/runs?*', change((answer) => answer.runs.forEach((run) => { if (run.id === 'math-qwen3-4b') run.name = name; })));
    await open('#/runs');
    await see(page, 'math-qwen3-4b');
    name = 'renamed-meanwhile';
    await see(page, 'renamed-meanwhile');
  }],
  ['a hidden page has no streams, and reads again when it is seen', async ({ page, open, requests }) => {
    const streams = () => requests.filter((url) => url.endsWith('/page/api/changes')).length;
    const lists = () => requests.filter((url) => url.includes('/page/api/runs?')).length;
    const visible = (state) => page.evaluate((now) => {
      Object.defineProperty(document, 'visibilityState', { value: now, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, state);
    await page.route('**/page/api/changes', (route) => route.fulfill({ contentType: 'text/event-stream', body: 'retry: 200\n\n' }));
    await open('#/runs');
    await see(page, RUN);
    await page.waitForFunction(() => document.querySelector('.badge-warn'));
    await visible('hidden');
    const before = [streams(), lists()];
    await page.waitForTimeout(600);
    equal([streams(), lists()].join(), before.join(), 'requests while the page is hidden');
    equal(await page.getByText('connection lost').count(), 0, 'notes about the connection');
    await page.unroute('**/page/api/changes');
    const again = page.waitForRequest((request) => request.url().includes('/page/api/runs?'));
    await visible('visible');
    await again;
    equal(streams(), before[0] + 1, 'streams after the page is seen again');
  }],
  ['side by side: a column that ends shows its outcome', async ({ page, open }) => {
    let ended = false;
    await page.route('**/runs/live/attempts/0', change((answer) => { if (ended) Object.assign(answer, { state: 'ended', outcome: 'submitted' }); }));
    await page.route('**/runs/live/attempts/0/events/stream?*', async (route) => { ended = true; await route.continue(); });
    await open(`#/side?${attempts(['live', '0'], ['20260301_101200', '0'])}`);
    await page.locator('.side-head').first().getByText('running').waitFor();
    await page.locator('.side-head').first().getByText('submitted').waitFor();
  }],
  ['a running episode: turns that are read late lose none that the stream sends', async ({ page, open }) => {
    let first = true;
    await page.route('**/live/attempts/0/turns?*', async (route) => {
      const late = first;
      first = false;
      if (late) await new Promise((done) => setTimeout(done, 1500));
      await route.continue();
    });
    await open('#/runs/live/attempts/0');
    await page.locator('.outline-row', { hasText: 'submit' }).waitFor();
    await page.keyboard.press('G');
    await page.locator('.turn.current[aria-label="Turn 6"]').waitFor();
    equal(await page.locator('.outline-row').count(), 6, 'turns in the outline');
  }],
  ['a lost session asks for the key', async ({ page, open }) => {
    await open('#/runs');
    await see(page, RUN);
    await page.route('**/page/api/**', refuse(401, 'sign in first'));
    await open('#/runs/live/attempts/0');
    await see(page, 'This page needs a key');
    // Also where nothing is asked but the stream: it ends with the server, and its successor does not know the session.
    await page.unrouteAll();
    await page.goto('about:blank');
    let ended = false;
    await page.route('**/page/api/changes', (route) => (ended ? refuse(401)(route) : route.fulfill({ contentType: 'text/event-stream', body: 'retry: 50\n\n' })));
    await page.route('**/page/api/info', (route) => (ended ? refuse(401)(route) : route.continue()));
    await open('#/runs');
    await see(page, RUN);
    ended = true;
    await see(page, 'This page needs a key');
  }, { expected: ['401'] }],
  ['training: curves and groups follow a run, and keep their colors', async ({ page, open }) => {
    const id = 'rl-documents-lr2e-6';
    let steps = 74;
    const row = { id, kind: 'training', name: id, path: id, state: 'running', updated: 1e15 };
    await page.route('**/page/api/changes', (route) => route.fulfill({ contentType: 'text/event-stream', body: steps > 74 ? `retry: 50\nevent: runs\ndata: ${JSON.stringify({ version: 1, runs: [{ ...row, steps: { done: steps, planned: 120 } }], removed: [] })}\n\n` : 'retry: 50\n\n' }));
    await page.route(`**/${id}/metrics`, change((answer) => {
      answer.metrics = answer.metrics.slice(0, 1);
      answer.metrics[0].values[answer.metrics[0].values.length - 1] = steps;
    }));
    for (const hash of ['#/training', `#/runs/${id}`]) {
      steps = 74;
      await open(hash);
      const chart = page.getByRole('img', { name: new RegExp(`Mean reward.*${id}: 74`) });
      await chart.waitFor();
      const canvas = await page.locator('.chart canvas').first().elementHandle();
      steps = 75;
      await page.getByRole('img', { name: new RegExp(`Mean reward.*${id}: 75`) }).waitFor();
      check(await canvas.evaluate((el) => el.isConnected), 'the chart is drawn again, not made again');
    }
    await open('#/training');
    const swatch = () => page.getByRole('button', { name: id, exact: true }).locator('.swatch').getAttribute('class');
    await page.locator('.chart canvas').first().waitFor();
    const before = await swatch();
    await page.getByRole('button', { name: 'rl-documents', exact: true }).click();
    await page.waitForURL((url) => url.hash.includes('runs='));
    equal(await swatch(), before, 'the color of a run after another one was left out');
  }],
  ['side by side: words that differ are marked in both columns', async ({ page, open }) => {
    await open(`#/side?${attempts(['math-qwen3-4b', 'math,sandbox,aime25-1,0'], [RUN, 'math,sandbox,aime25-1,0'])}`);
    await page.locator('.side-cell .call').first().waitFor();
    const words = (column, tag, where) => page.locator(`.side-cell:nth-child(${column}) ${where} ${tag}.word`).allTextContents();
    const both = async (where, old, now) => {
      await page.locator(`.side-cell ${where} ins.word`).first().waitFor();
      equal((await words(1, 'del', where)).join('|'), old, `${where}, first column`);
      equal((await words(2, 'ins', where)).join('|'), now, `${where}, second column`);
      equal((await words(1, 'ins', where)).length + (await words(2, 'del', where)).length, 0, `${where}: added in the first column or removed in the second`);
    };
    await both('.thinking', 'missing', 'empty');
    await both('.block-code:has([aria-label*="revenue.py"])', '2024', '2025');
    equal((await page.locator('.side-head:nth-child(1) del.word').allTextContents()).join('').length > 0, true, 'the answer in the first column');
    equal((await page.locator('.side-head:nth-child(2) ins.word').allTextContents()).join('').length > 0, true, 'the answer in the second column');
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    await page.locator('.side-cell:nth-child(1) .block-output del.word', { hasText: 'Traceback' }).waitFor();
    await page.locator('.side-cell:nth-child(2) .block-output ins.word', { hasText: 'West' }).first().waitFor();
    await page.locator('.side-cell:nth-child(1) .block-code del.word', { hasText: 'North' }).waitFor();
  }],
  ['side by side: long episodes are aligned by their turns, or it is said', async ({ page, open }) => {
    const row = (turn) => page.locator('.side-row', { has: page.locator('.side-cell:first-child .turn-number', { hasText: new RegExp(`^${turn}$`) }) });
    await open(`#/side?${attempts(['parts-a', '0'], ['parts-b', '0'])}`);
    await page.locator('.side-cell .call').first().waitFor();
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight / 2; });
    await page.waitForFunction(() => Number([...document.querySelectorAll('.side-row .side-cell:first-child .turn-number')][3]?.textContent) > 100);
    const number = await page.locator('.side-row .side-cell:first-child .turn-number').nth(3).textContent();
    equal(await row(number).locator('.side-cell:nth-child(2) .turn-number').textContent(), String(Number(number) + 3), `the turn beside ${number}`);
    equal(await page.getByText('paired by number').count(), 0, 'notes about turns by number');
    await open(`#/side?${attempts(['alike-a', '0'], ['alike-b', '0'])}`);
    await see(page, '800 rows paired by number');
  }],
  ['side by side: heads, rows and the title have the same edges', async ({ page, open }) => {
    await open(`#/side?${attempts(['math-qwen3-4b', 'math,sandbox,aime25-1,0'], [RUN, 'math,sandbox,aime25-1,0'])}`);
    await page.locator('.side-cell .call').first().waitFor();
    const edges = await page.evaluate(() => {
      const box = (selector) => document.querySelector(selector).getBoundingClientRect();
      const heads = [...document.querySelectorAll('.side-head')].map((el) => el.getBoundingClientRect());
      const cells = [...document.querySelector('.virtual-row').querySelectorAll('.side-cell')].map((el) => el.getBoundingClientRect());
      return { heads: heads.map((h) => [h.left, h.right]), cells: cells.map((c) => [c.left, c.right]), title: box('h1').left, head: box('.side-head a').left, cell: box('.side-cell .turn-number').left, list: box('.virtual').left + document.querySelector('.virtual').clientWidth };
    });
    equal(JSON.stringify(edges.heads), JSON.stringify(edges.cells), 'columns of the head and of the rows');
    equal([edges.head, edges.cell].join(), [edges.title, edges.title].join(), 'where the title, the head and the rows begin');
    equal(edges.cells.at(-1)[1], edges.list, 'where rows end');
  }],
  ['the exit code is said once', async ({ page, open }) => {
    await open('#/runs/parts-a/attempts/0?turn=5');
    await page.locator('.turn.current .badge', { hasText: 'exit 0' }).waitFor();
    await page.locator('.turn.current', { hasText: '[stdout]' }).waitFor();
    equal(await page.getByText('[exit code 0]').count(), 0, 'exit codes in texts');
  }],
];
