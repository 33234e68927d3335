// The tests with made-up records, as stories.
import { accessible, answersKeys, check, contiguous, equal, overflows, see, settle } from './check.mjs';
import { exported } from './export.mjs';

const EPISODE = '#/runs/math-qwen3-32b/attempts/math%2Csandbox%2Caime25-3%2C0';
const VIEWS = ['#/runs', '#/runs/math-qwen3-32b', '#/runs/math-qwen3-32b?tab=summary', '#/runs/math-qwen3-32b?tab=settings', EPISODE, `${EPISODE}?tab=details`, '#/runs/20260301_101200/attempts/0?tab=files&file=output/totals.csv', '#/compare', '#/compare?runs=math-qwen3-4b,math-qwen3-32b', '#/side?e=math-qwen3-4b%2Fmath%252Csandbox%252Caime25-1%252C0&e=math-qwen3-32b%2Fmath%252Csandbox%252Caime25-1%252C0', '#/training', '#/runs/rl-documents', '#/runs/rl-documents?tab=groups', '#/runs/rl-documents?tab=attempts', '#/runs/resumed/attempts/0?turn=2&at=2', '#/runs/episodes', '#/training?metric=none', '#/runs/20260301_101200/attempts/0?tab=files&file=output/page.html', '#/try', '#/terminal', '#/runs/nope'];
/** What the browser says where it stops a file of a model. */
const FRAMED = ['sandboxed', 'Content Security Policy', 'Blocked script', 'ERR_', 'violates', 'Refused to refresh'];
const NOT_FOUND = { expected: ['404'] };
/** What opens over or in a view. */
const OPENED = [
  ['the help', '#/runs', async (page) => {
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
  }],
  ['downloads of an episode', EPISODE, async (page) => {
    await page.locator('.menu summary').click();
    await page.getByRole('link', { name: 'ATIF' }).waitFor();
  }],
  ['downloads of a run', '#/runs/math-qwen3-32b', async (page) => {
    await page.locator('.menu summary').click();
    await page.getByRole('link', { name: 'One HTML file' }).waitFor();
  }],
  ['changes of a turn', `${EPISODE}?turn=3`, async (page) => {
    await page.getByRole('button', { name: '1 file changed' }).click();
    await page.locator('.diff-new').first().waitFor();
  }],
  ['equal settings of a comparison', '#/compare?runs=math-qwen3-4b,math-qwen3-32b', (page) => page.getByText('equal settings').click()],
  ['marked words', VIEWS.find((view) => view.startsWith('#/side')), (page) => page.locator('ins.word').first().waitFor()],
  ['runs that are chosen', '#/runs', (page) => page.getByLabel('Choose math-qwen3-4b to compare').check()],
  ['a terminal', '#/terminal?sandbox=i3k9x2m4', (page) => page.getByText('user@sandbox').first().waitFor()],
  ['the end of a sandbox', '#/terminal?sandbox=i3k9x2m4', async (page) => {
    await page.getByRole('button', { name: /^End sandbox/ }).first().click();
    await page.getByRole('dialog', { name: 'End the sandbox?' }).waitFor();
  }],
  ['the form for a key', '#/runs', async (page) => {
    await page.route('**/page/api/**', (route) => route.fulfill({ status: 401, json: { error: { code: 'unauthorized', message: 'a key is needed' } } }));
    await page.reload();
    await page.getByLabel('Key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
  }],
  ['a lost connection', '#/runs', async (page) => {
    await page.route('**/page/api/changes*', (route) => route.abort());
    await page.reload();
    await page.getByText('connection lost').waitFor();
  }],
  ['a view that failed', '#/runs', async (page) => {
    await page.route('**/page/api/runs*', (route) => route.fulfill({ status: 500, json: { error: { code: 'internal', message: 'the disk cannot be read' } } }));
    await page.reload();
    await page.getByText('Cannot show this').waitFor();
  }],
  ['turns that failed', EPISODE, async (page) => {
    await page.route('**/events?*', (route) => route.fulfill({ status: 500, json: { error: { code: 'internal', message: 'the disk cannot be read' } } }));
    await page.reload();
    await page.getByText('the disk cannot be read').first().waitFor();
  }],
  ['a file without a server', '#/runs', async (page) => {
    await page.goto(`file://${exported()}`);
    await see(page, 'Let me look at the data first.');
  }],
  ['files without a server', '#/runs', async (page) => {
    await page.goto(`file://${exported()}#/runs/20260301_101200/attempts/0?tab=files&file=output/umlauts.txt`);
    await page.getByRole('button', { name: /^Load/ }).waitFor();
  }],
];

export const tests = [
  ['runs: search, filter and sort; each has an address', async ({ page, open }) => {
    await open('#/runs');
    await see(page, 'math-qwen3-32b');
    await page.getByLabel('Search runs').fill('qwen3-4b math');
    await see(page, '2 of 24');
    check(page.url().includes('q=qwen3-4b'), 'the search is in the address');
    await page.getByLabel('Search runs').fill('nothing like this');
    await see(page, 'No run matches');
    await page.getByRole('button', { name: 'Show all runs' }).click();
    await page.getByRole('button', { name: /Training/ }).click();
    await see(page, 'rl-documents');
    check(page.url().includes('kind=training'), 'the filter is in the address');
    await page.goBack();
  }],
  ['runs: progress is followed', async ({ page, open }) => {
    await open('#/runs');
    const bar = page.getByRole('row', { name: /ifbench/ }).getByRole('progressbar');
    const before = Number(await bar.getAttribute('aria-valuenow'));
    await page.waitForFunction((n) => Number(document.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow')) > n, before);
  }],
  ['runs: a link to all of them ends a search', async ({ page, open }) => {
    await open('#/runs?q=qwen3-4b');
    await see(page, 'of 24');
    await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Runs' }).click();
    await see(page, 'ifbench');
    equal(await page.getByLabel('Search runs').inputValue(), '', 'the field');
    await page.goBack();
    await see(page, 'of 24');
    equal(await page.getByLabel('Search runs').inputValue(), 'qwen3-4b', 'the field after going back');
  }],
  ['keys: Enter presses what has the focus, else it opens the row', async ({ page, open }) => {
    await open('#/runs');
    await see(page, 'math-qwen3-32b');
    await page.keyboard.press('j');
    await page.locator('.grid-row.selected').waitFor();
    await page.getByRole('button', { name: 'Name' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/sort=name/);
    await page.getByRole('link', { name: 'Training' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => url.hash === '#/training');
    await page.getByRole('heading', { name: 'Training', exact: true }).waitFor();
    await page.goBack();
    await page.waitForURL(/sort=name/);
    await see(page, 'hostile<img');
    await page.keyboard.press('j');
    const row = page.locator('.grid-row.selected a.cover');
    await row.waitFor();
    const href = await row.getAttribute('href');
    await page.keyboard.press('Enter');
    await page.waitForURL((url) => url.hash === href);
  }],
  ['a new view has its title and the focus', async ({ page, open }) => {
    await open(EPISODE);
    await page.waitForFunction(() => document.title === 'aime25-3 · math-qwen3-32b');
    await page.getByRole('link', { name: 'Compare' }).click();
    await page.waitForFunction(() => document.title === 'Compare · study' && document.activeElement?.id === 'main');
    await page.goBack();
    await page.waitForFunction(() => document.title === 'aime25-3 · math-qwen3-32b');
  }],
  ['a token in the address of an open page is used and removed', async ({ page, open, asked }) => {
    await open('#/compare');
    await see(page, 'Compare runs');
    await page.evaluate(() => { location.hash = '#token=0123'; });
    await page.waitForFunction(() => location.hash === '');
    await see(page, 'math-qwen3-32b');
    check(asked.includes('POST /page/api/login'), 'the token was sent');
    await page.goBack();
    await see(page, 'Compare runs');
    equal(page.url().includes('token'), false, 'the token in the history');
  }],
  ['episodes of several tables are put side by side', async ({ page, open }) => {
    await open('#/runs');
    await page.getByLabel('Choose 20260301_101200 for a column').check();
    await see(page, '1 episode chosen');
    await page.getByLabel('Search runs').fill('episodes of the server');
    await page.getByRole('link', { name: 'episodes of the server' }).click();
    await see(page, '2 attempts');
    await page.getByRole('checkbox').nth(1).check();
    await page.getByRole('link', { name: 'Side by side' }).click();
    await page.locator('.side-cell .call').first().waitFor();
    equal((await page.locator('.side-head b').allTextContents()).join(), '20260301_101200,episodes of the server', 'columns');
    await page.goBack();
    await page.getByRole('button', { name: 'Clear' }).click();
    equal(await page.getByRole('link', { name: 'Side by side' }).count(), 0, 'links after all were given up');
  }],
  ['runs: two are chosen and compared', async ({ page, open }) => {
    await open('#/runs');
    await page.getByLabel('Choose math-qwen3-4b to compare').check();
    await page.getByLabel('Choose math-qwen3-32b to compare').check();
    await page.getByRole('link', { name: 'Compare', exact: true }).last().click();
    await see(page, 'Difference');
    check(page.url().includes('runs=math-qwen3-4b%2Cmath-qwen3-32b'), 'the runs are in the address');
  }],
  ['run: 10,000 attempts are filtered, sorted and scrolled', async ({ page, open }) => {
    await open('#/runs/swe-large-study');
    await see(page, '10,000 attempts');
    await page.getByRole('combobox').first().selectOption('passed');
    await see(page, /3,\d\d\d of 10,000/);
    await page.getByRole('button', { name: 'Turns' }).click();
    check(page.url().includes('sort=turns'), 'the order is in the address');
    // Sorted rows are shown from the first one, so the list may be at the top again.
    await page.waitForFunction(() => {
      const list = document.querySelector('.virtual');
      list.scrollTop = list.scrollHeight;
      return Number([...document.querySelectorAll('.virtual-row')].at(-1)?.dataset.index) > 3000 && document.querySelectorAll('.pending').length === 0;
    });
    check((await page.locator('.virtual-row').count()) < 80, 'few rows are drawn');
    await settle(page);
    const row = await page.locator('.virtual-row').first().getAttribute('data-index');
    await page.locator('a.cover').nth(12).click();
    await page.locator('.turn').first().waitFor();
    await page.goBack();
    await page.waitForFunction((n) => Math.abs(Number(document.querySelector('.virtual-row')?.dataset.index) - n) < 30, Number(row));
  }],
  ['run: summary and outcomes', async ({ page, open }) => {
    await open('#/runs/math-qwen3-32b?tab=summary');
    await see(page, 'pass@k');
    await page.getByRole('link', { name: /max turns/ }).click();
    check(page.url().includes('outcome=max_turns'), 'an outcome leads to its attempts');
  }],
  ['episode: turns, calls, results, colours', async ({ page, open }) => {
    await open(EPISODE);
    await see(page, 'Let me look at the data first.');
    await page.locator('.hl-built_in').first().waitFor();
    check((await page.locator('.turn').count()) >= 2, 'turns are drawn');
    await page.keyboard.press('G');
    await page.locator('.af-2').first().waitFor({ state: 'attached' });
    await see(page, 'the model submitted its answer');
  }],
  ['episode: keyboard and deep links', async ({ page, open }) => {
    await open(EPISODE);
    await see(page, 'Let me look');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.locator('.turn.current[aria-label="Turn 2"]').waitFor();
    check(page.url().includes('turn=2'), 'the turn is in the address');
    await page.keyboard.press('k');
    await page.locator('.turn.current[aria-label="Turn 1"]').waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('/');
    equal(await page.evaluate(() => document.activeElement?.hasAttribute('data-search')), true, '`/` goes to the search field');
    await page.keyboard.type('revenue.py');
    await see(page, /\d of 6 turns/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('n');
    await page.waitForURL(/aime25-4/);
    await page.goBack();
    await page.waitForURL(/aime25-3/);
    await page.keyboard.press('u');
    await see(page, '60 attempts');
  }],
  ['episode: after other turns, `g` goes to the first', async ({ page, open }) => {
    await open(EPISODE);
    await see(page, 'Let me look');
    for (const turn of [1, 2, 3]) {
      await page.keyboard.press('j');
      await page.locator(`.turn.current[aria-label="Turn ${turn}"]`).waitFor();
    }
    await page.keyboard.press('g');
    await page.locator('.turn.current[aria-label="Turn 1"]').waitFor();
    check(page.url().includes('turn=1'), `the address: ${page.url()}`);
  }],
  ['episode: rows that a filter moves are measured again', async ({ page, open }) => {
    await open(EPISODE);
    await see(page, 'Let me look');
    await contiguous(page, '.turns', 'all turns');
    for (const filter of ['File changes', 'All', 'Errors', 'All']) {
      await page.getByRole('button', { name: filter, exact: true }).click();
      await page.locator(`.choice [aria-pressed="true"]`, { hasText: filter }).waitFor();
      await settle(page);
      await contiguous(page, '.turns', filter);
    }
  }],
  ['episode: a link to a turn opens there', async ({ page, open }) => {
    await open('#/runs/poster.json/attempts/0?turn=20').catch(() => undefined);
    if (await page.getByText('there is no run').isVisible().catch(() => false)) return { skip: 'there are no trajectories beside the workspace' };
    await page.locator('.turn.current[aria-label="Turn 20"]').waitFor();
    await settle(page);
    const box = await page.locator('.turn.current').boundingBox();
    const list = await page.locator('.turns').boundingBox();
    check(Math.abs(box.y - list.y) < 40, `the turn is at the top, not at ${box.y - list.y}`);
  }, NOT_FOUND],
  ['episode: files that a turn changed, with a difference', async ({ page, open }) => {
    await open(`${EPISODE}?turn=3`);
    const fold = page.getByRole('button', { name: '1 file changed' });
    await fold.click();
    await page.locator('.change .diff-new').first().waitFor();
    await see(page, 'derived from the tool calls');
  }],
  ['episode: a search reads all turns of a long episode', async ({ page, open }) => {
    await open('#/runs/long/attempts/0');
    await page.locator('.turn .call').first().waitFor();
    await page.getByLabel('Search calls').fill('--part 140003');
    // All parts of the episode are asked for and searched.
    await page.getByText('1 of 150,000 turns', { exact: true }).first().waitFor({ timeout: 60000 });
    await page.locator('.turn[aria-label="Turn 140003"]').waitFor();
  }],
  ['episode: long output is folded and unfolds', async ({ page, open }) => {
    await open('#/runs/long/attempts/0?turn=20');
    await page.getByRole('button', { name: /Show all · 21 lines/ }).first().click();
    await see(page, 'line 21 of part 20');
    await page.getByRole('button', { name: 'Show less' }).first().click();
  }],
  ['episode: followed while it runs', async ({ page, open }) => {
    await open('#/runs/live/attempts/0');
    await page.getByRole('button', { name: 'Follow' }).click();
    await see(page, '812345.50');
    await see(page, 'West leads. Writing the answer.');
    await page.waitForFunction(() => !document.querySelector('.end.live'));
    equal(await page.locator('.outline-row').count(), 6, 'turns in the outline');
    await page.locator('.turn[aria-label="Turn 6"]').waitFor();
    const end = await page.locator('.turns').evaluate((el) => el.scrollHeight - el.scrollTop - el.clientHeight);
    check(end < 60, `the view follows the end, not ${end} pixels above it`);
  }],
  ['episode: fork from a turn', async ({ page, open, asked }) => {
    await open('#/runs/episodes/attempts/ep_2?turn=2');
    await page.locator('.turn.current').getByRole('button', { name: /Fork from here/ }).click();
    await page.waitForURL(/ep_1/);
    check(asked.some((a) => a.startsWith('POST') && a.endsWith('/v1/episodes/ep_2/fork')), 'the fork was asked for');
  }],
  ['episode: command lines can be copied', async ({ page, open, context }) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await open(`${EPISODE}?tab=details`);
    await page.getByRole('button', { name: 'Copy the command line' }).first().click();
    equal(await page.evaluate(() => navigator.clipboard.readText()), 'llm-in-sandbox replay study/math-qwen3-32b --id aime25-3', 'the clipboard');
  }],
  ['files: text, table, image and a page without scripts', async ({ page, open }) => {
    const file = (name) => `#/runs/20260301_101200/attempts/0?tab=files&file=${name}`;
    await open(file('output/totals.csv'));
    await page.getByRole('cell', { name: 'South, and islands' }).waitFor();
    await page.getByRole('button', { name: 'Text', exact: true }).click();
    await see(page, '"South, and islands"');
    check(page.url().includes('as=text'), 'the choice is in the address');
    await open(file('output/chart.svg'));
    await page.locator('img.picture').waitFor();
    await open(file('output/report.md'));
    await see(page, 'Revenue by region');
    equal(await page.locator('.preview a[href^="javascript"]').count(), 0, 'links of a file');
    await open(file('output/page.html'));
    const frame = page.locator('iframe.frame');
    await frame.waitFor();
    equal(await frame.getAttribute('sandbox'), '', 'the frame is sandboxed');
    await settle(page);
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what the page did');
    await open(`${file('output/page.html')}&as=text`);
    await see(page, 'parent.pwned=9');
  }, { expected: FRAMED }],
  ['compare: who won where, and only disagreements', async ({ page, open }) => {
    await open('#/compare?runs=math-qwen3-4b,math-qwen3-32b,math-qwen3-4b-adapter');
    await see(page, 'mcnemar');
    await see(page, '60 of 60 problems');
    await page.getByRole('button', { name: 'Disagreements' }).click();
    await page.waitForFunction(() => /^[1-5]\d of 60/.test(document.querySelector('[role=status]')?.textContent ?? ''));
    await page.getByRole('link', { name: 'Side by side' }).first().click();
    await see(page, 'baseline');
    await page.locator('.side-row .side-cell').first().waitFor();
    equal(await page.locator('.side-head').count(), 3, 'columns');
    await page.goBack();
    await page.waitForURL(/only=disagree/);
  }],
  ['compare: side by side from a phone', async ({ page, open }) => {
    await open('#/compare?runs=math-qwen3-4b,math-qwen3-32b&only=disagree');
    await page.getByRole('link', { name: 'Side by side' }).first().click();
    await page.locator('.side-cell .call').first().waitFor();
    check(!(await overflows(page)), 'the columns are too wide');
  }, { viewport: { width: 390, height: 844 } }],
  ['compare: columns are aligned and differences marked', async ({ page, open }) => {
    await open('#/side?e=math-qwen3-4b%2Fmath%252Csandbox%252Caime25-1%252C0&e=math-qwen3-32b%2Fmath%252Csandbox%252Caime25-1%252C0');
    await page.locator('.side-cell .call').first().waitFor();
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    await page.locator('.side-cell.differs ins.word').first().waitFor();
    await page.getByRole('button', { name: 'By number' }).click();
    check(page.url().includes('align=number'), 'the alignment is in the address');
  }],
  ['compare: turns of very long episodes are loaded when they are seen', async ({ page, open }) => {
    await open('#/side?e=long%2F0&e=parts-a%2F0');
    await page.locator('.side-cell .call').first().waitFor();
    await page.locator('.side-scroll .virtual').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    await page.locator('.side-cell:first-child .turn-number', { hasText: '150,000' }).waitFor();
    await page.locator('.side-cell:first-child .call').last().waitFor();
    equal(await page.locator('.side-cell:first-child[aria-label="no turn"]').count(), 0, 'turns that are not there');
  }],
  ['training: without a chosen run there are no curves', async ({ page, open }) => {
    await open('#/training');
    await page.locator('.chart canvas').first().waitFor();
    const chosen = page.locator('.chip[aria-pressed="true"]');
    for (let left = await chosen.count(); left > 0; left--) {
      await chosen.first().click();
      await page.waitForFunction((n) => document.querySelectorAll('.chip[aria-pressed="true"]').length < n, left);
    }
    await see(page, 'No run is chosen');
  }],
  ['training: curves of two runs, and groups', async ({ page, open }) => {
    await open('#/training');
    await page.locator('.chart canvas').first().waitFor();
    check((await page.locator('.chart canvas').count()) >= 9, 'charts');
    await page.getByRole('button', { name: 'Smoother' }).click();
    await page.getByLabel('Search metrics').fill('entropy');
    await page.waitForFunction(() => document.querySelectorAll('.chart').length === 1);
    check(page.url().includes('metric=entropy') && page.url().includes('smooth=0.9'), 'the search and the smoothing are in the address');
    await page.reload();
    await page.getByRole('button', { name: 'Smoother', pressed: true }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll('.chart').length === 1);
    await open('#/runs/rl-documents?tab=groups&step=2&set=train');
    await see(page, 'mean 0');
    equal(await page.locator('.group').first().locator('.member').count(), 8, 'members of a group');
    await page.locator('.member').first().click();
    await page.waitForURL(/attempts\/train%2C2/);
  }],
  ['try it: a task with a dropped file', async ({ page, open, asked }) => {
    await open('#/try');
    const data = await page.evaluateHandle(() => {
      const transfer = new DataTransfer();
      transfer.items.add(new File(['a,b\n1,2\n'], 'sums.csv', { type: 'text/csv' }));
      return transfer;
    });
    await page.dispatchEvent('form.try', 'dragover', { dataTransfer: data });
    await page.locator('form.try.over').waitFor();
    await page.evaluate(() => document.querySelector('form.try').dispatchEvent(new DragEvent('dragleave', { bubbles: true, relatedTarget: document.querySelector('form.try textarea') })));
    await settle(page);
    equal(await page.locator('form.try.over').count(), 1, 'the form while the file is over one of its fields');
    await page.dispatchEvent('form.try', 'drop', { dataTransfer: data });
    await see(page, 'sums.csv');
    await page.getByLabel('Files', { exact: true }).setInputFiles({ name: 'more.csv', mimeType: 'text/csv', buffer: Buffer.from('1') });
    await page.getByRole('button', { name: 'Remove more.csv' }).click();
    equal(await page.getByLabel('Files', { exact: true }).inputValue(), '', 'a file can be chosen again');
    await page.getByLabel('Task').fill('Add up each column.');
    await page.getByLabel('Turn limit').fill('7');
    const sent = page.waitForRequest((r) => r.url().endsWith('/v1/episodes') && r.method() === 'POST');
    await page.getByRole('button', { name: 'Start' }).click();
    const body = (await sent).postDataJSON();
    equal(body.files[0].path, 'sums.csv', 'the file');
    equal(Buffer.from(body.files[0].base64, 'base64').toString(), 'a,b\n1,2\n', 'its content');
    equal(body.limits.turns, 7, 'the limit');
    await page.waitForURL(/runs\/episodes\/attempts\/ep_1/);
    check(asked.some((a) => a === 'POST /v1/episodes'), 'the episode was started');
  }],
  ['terminal: typing, output, a link, end', async ({ page, open, context }) => {
    await open('#/terminal?sandbox=i3k9x2m4');
    await page.locator('.xterm-rows').waitFor();
    await see(page, 'user@sandbox');
    await page.locator('.xterm-helper-textarea').focus();
    await page.keyboard.type('ls j k ?\n');
    await page.waitForFunction(() => document.querySelector('.xterm-rows')?.textContent?.includes('you typed: ls j k ?'));
    const spacing = await page.evaluate(() => getComputedStyle(document.querySelector('.xterm-rows span')).display);
    equal(spacing, 'inline-block', 'the rules of the library apply');
    await page.keyboard.type('colors\n');
    const color = (text) => page.locator('.xterm-rows span', { hasText: text }).first().evaluate((el) => [getComputedStyle(el).color, getComputedStyle(el).backgroundColor]);
    await page.locator('.xterm-rows span', { hasText: 'on green' }).waitFor();
    equal((await color('of its own'))[0], 'rgb(160, 20, 80)', 'a color beyond the palette');
    const light = (rgb) => rgb.match(/\d+/g).slice(0, 3).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0.05);
    const [dark, bright] = (await color('on green')).map(light).sort((a, b) => a - b);
    check(bright / dark >= 4.5, `the contrast of black on green: ${bright / dark}`);
    // A link that a program prints does nothing when it is clicked: no question, no window.
    await page.keyboard.type('link\n');
    const printed = page.locator('.xterm-rows > div', { hasText: 'a link of a program' });
    await printed.waitFor();
    const box = await printed.boundingBox();
    await page.mouse.move(box.x + 40, box.y + box.height / 2, { steps: 5 });
    await page.locator('.xterm-cursor-pointer, .xterm-rows .xterm-underline-1, .xterm-rows .xterm-underline-5').first().waitFor({ state: 'attached' });
    await page.mouse.click(box.x + 40, box.y + box.height / 2);
    await settle(page);
    equal(context.pages().length, 1, 'windows after a click on a link');
    await page.locator('.xterm-helper-textarea').focus();
    await page.keyboard.type('exit\n');
    await see(page, 'The shell ended with status 0.');
  }],
  ['a hostile trajectory does nothing', async ({ page, open }) => {
    await open('#/runs');
    await see(page, 'hostile<img');
    await open('#/runs/hostile/attempts/0');
    await see(page, '<script>window.pwned=1');
    await page.locator('.hidden-char', { hasText: 'RLO' }).first().waitFor();
    await page.locator('.turn').first().waitFor();
    for (const button of await page.getByRole('button', { name: /Show all/ }).all()) await button.click({ timeout: 1000 }).catch(() => undefined);
    await page.keyboard.press('G');
    await page.getByRole('button', { name: /Load the whole text/ }).first().click();
    await settle(page);
    await open('#/runs/hostile/attempts/0?tab=details');
    await see(page, 'Protection');
    await open('#/runs/hostile/attempts/0?tab=files&file=output/laughs.svg');
    await answersKeys(page);
    await open('#/side?e=20260301_101200%2F0&e=hostile%2F0%2F<img src=x onerror="window.pwned=20">');
    await see(page, '<script>window.pwned=1');
    for (const button of await page.getByRole('button', { name: /Show all/ }).all()) await button.click({ timeout: 1000 }).catch(() => undefined);
    await settle(page);
    equal(await page.evaluate(() => globalThis.pwned), undefined, 'what scripts did');
    equal(await page.evaluate(() => document.querySelectorAll('main script, main style, main iframe, main object, main embed, main [onerror], main [onload]').length), 0, 'elements that act');
    equal(await page.evaluate(() => [...document.querySelectorAll('a[href]')].filter((a) => !/^(#|page\/|http:\/\/127)/.test(a.getAttribute('href'))).length), 0, 'links elsewhere');
  }, { expected: ['Content Security Policy', 'violates', 'ERR_'] }],
  ['errors and empty views say what to do', async ({ page, open }) => {
    await open('#/runs/nope');
    await see(page, 'there is no run');
    await open('#/nothing');
    await see(page, 'There is no such view');
    await open('#/side');
    await see(page, 'Nothing to put side by side');
  }, NOT_FOUND],
  ['dark mode follows the system and the switch', async ({ page, open }) => {
    await open('#/runs');
    await see(page, 'Runs');
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    equal(await paper(), 'rgb(20, 24, 28)', 'dark paper');
    await page.getByRole('button', { name: /Theme: system/ }).click();
    equal(await paper(), 'rgb(255, 255, 255)', 'light paper');
    await page.reload();
    await see(page, 'math-qwen3-32b');
    equal(await paper(), 'rgb(255, 255, 255)', 'the choice is remembered');
  }, { colorScheme: 'dark' }],
  ['phone width: nothing is wider than the screen', async ({ page, open }) => {
    for (const view of VIEWS) {
      await open(view);
      await settle(page);
      check(!(await overflows(page)), `${view} is too wide`);
    }
  }, { viewport: { width: 360, height: 740 }, hasTouch: true, expected: ['404', ...FRAMED] }],
  ...[['light', {}], ['dark', { colorScheme: 'dark' }]].map(([theme, options]) => [`no serious accessibility fault, ${theme}`, async ({ page, open }) => {
    for (const view of VIEWS) {
      await open(view);
      await settle(page);
      await accessible(page, view);
    }
    for (const [name, view, act] of OPENED) {
      await page.goto('about:blank');
      await open(view);
      await settle(page);
      await act(page);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      await accessible(page, name);
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    }
    return `${VIEWS.length} views, and ${OPENED.length} with something open or failed`;
  }, { ...options, expected: ['401', '404', '500', ...FRAMED] }]),
  ['nothing moves once it is shown', async ({ page, open }) => {
    await page.addInitScript(() => {
      globalThis.shifts = [];
      new PerformanceObserver((list) => {
        for (const { value, hadRecentInput, sources } of list.getEntries()) if (!hadRecentInput) globalThis.shifts.push([value, sources.map((s) => s.node?.className || s.node?.nodeName).join()]);
      }).observe({ type: 'layout-shift', buffered: true });
    });
    let most = 0;
    for (const view of VIEWS) {
      await page.goto('about:blank');
      await open(view);
      await settle(page);
      // What is measured and drawn after that, and the report about it.
      await page.waitForTimeout(300);
      const shifts = await page.evaluate(() => globalThis.shifts);
      const sum = shifts.reduce((all, [value]) => all + value, 0);
      most = Math.max(most, sum);
      check(sum < 0.05, `${view}: cumulative layout shift ${sum.toFixed(3)}: ${JSON.stringify(shifts)}`);
    }
    return `cumulative layout shift of ${VIEWS.length} views: at most ${most.toFixed(3)}`;
  }, { alone: true, expected: ['404', ...FRAMED] }],
  ['300,000 events: opens at once and scrolls', async ({ page, open }) => {
    const started = performance.now();
    await open('#/runs/long/attempts/0');
    await page.locator('.turn .call').first().waitFor();
    const first = Math.round(performance.now() - started);
    const paint = await page.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0));
    await page.locator('.turns').hover();
    await page.evaluate(() => {
      globalThis.frames = [];
      let last = performance.now();
      const tick = (now) => { globalThis.frames.push(now - last); last = now; if (globalThis.frames.length < 2000) requestAnimationFrame(tick); };
      requestAnimationFrame(tick);
    });
    for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 240);
    const frames = await page.evaluate(() => globalThis.frames.slice(1).sort((a, b) => a - b));
    const half = frames[Math.floor(frames.length / 2)];
    const late = frames[Math.floor(frames.length * 0.95)];
    const isNear = (n) => { const row = document.querySelectorAll('.turns .turn .call').length > 0 && Number(document.querySelector('.turns .virtual-row')?.dataset.index); return Math.abs(row - n) < 3000; };
    // A jump of which the list learns only after the moment in which it settles an earlier scroll.
    await page.locator('.turns').evaluate(async (el) => {
      const scrolled = new Promise((done) => el.addEventListener('scroll', done, { once: true }));
      el.scrollTop += 50;
      await scrolled;
      await new Promise((done) => setTimeout(done, 150));
      el.scrollTop = 0.3 * (el.scrollHeight - el.clientHeight);
      for (const end = performance.now() + 15; performance.now() < end;);
    });
    await page.waitForFunction(isNear, 45_000);
    for (const share of [0.5, 0.99, 0.1]) {
      await page.locator('.turns').evaluate((el, s) => { el.scrollTop = s * (el.scrollHeight - el.clientHeight); }, share);
      const near = 150000 * share;
      await page.waitForFunction(isNear, near);
    }
    await page.keyboard.press('G');
    await page.locator('.turn[aria-label="Turn 150000"] .call').waitFor();
    check((await page.locator('.turns .virtual-row').count()) < 40, 'few rows are drawn');
    // Bounds for a machine that runs other tests meanwhile.
    check(first < 30_000, `the first turn was shown after ${first} ms`);
    check(half < 500, `frames took ${half} ms`);
    return `first paint ${paint} ms, first turn ${first} ms; frames while scrolling: median ${half.toFixed(1)} ms, 95% below ${late.toFixed(1)} ms`;
  }, { alone: true }],
  ['export: one file without a server', async ({ page }) => {
    await page.goto(`file://${exported()}`);
    await see(page, 'Let me look at the data first.');
    await page.locator('.hl-built_in').first().waitFor();
    await page.keyboard.press('j');
    await page.locator('.turn.current').waitFor();
    check(page.url().includes('turn=1'), 'addresses work');
    await page.getByRole('link', { name: 'Runs' }).first().click();
    await see(page, '20260301_101200');
    await page.getByLabel('Search runs').fill('nothing');
    await see(page, 'No run matches');
    // A text in parts: no character is cut.
    await page.goto(`${page.url().replace(/#.*/, '')}#/runs/20260301_101200/attempts/0?tab=files&file=output/umlauts.txt`);
    await page.getByRole('button', { name: /^Load/ }).click();
    await page.waitForFunction(() => !document.querySelector('.preview > .preview-body > .link'));
    equal(await page.locator('.preview').evaluate((el) => el.textContent.includes('\ufffd')), false, 'characters that were cut');
  }],
];
