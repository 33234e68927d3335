// Tests of the page of `serve`: the program, native sandboxes, and a model that does what the tests say.
import { accessible, check, equal, overflows, see } from './check.mjs';
import { KEY } from './program.mjs';

const base = (address) => address.replace(/#.*/, '');

/** Signs in by the form, as somebody does who got a key. */
const enter = async ({ page, address }, hash = '#/runs') => {
  await page.goto(base(address) + hash);
  await page.getByLabel('Key').fill(KEY);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 'Try it' }).waitFor();
};

/** Starts an episode by the form and waits until its page is there. */
const start = async (context, task, files = {}) => {
  const { page } = context;
  await enter(context, '#/try');
  if (Object.keys(files).length > 0) {
    const data = await page.evaluateHandle((all) => {
      const transfer = new DataTransfer();
      for (const [name, text] of Object.entries(all)) transfer.items.add(new File([text], name, { type: 'text/csv' }));
      return transfer;
    }, files);
    await page.dispatchEvent('form.try', 'dragover', { dataTransfer: data });
    await page.locator('form.try.over').waitFor();
    await page.dispatchEvent('form.try', 'drop', { dataTransfer: data });
    for (const name of Object.keys(files)) await see(page, name);
  }
  await page.getByLabel('Task').fill(task);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/attempts\/ep_/);
  return /attempts\/(ep_[^?]+)/.exec(page.url())[1];
};

/** The same where the page may have read the episode in a moment in which it was not running yet: then it is loaded again. */
const settled = async (page, text) => {
  for (let tries = 0; tries < 5; tries++) {
    const shown = await page.locator('.title-line .badge', { hasText: text }).waitFor({ timeout: 3000 }).then(() => true, () => false);
    if (shown) return;
    await page.reload();
  }
  await state(page, text);
};
const state = (page, text) => page.locator('.title-line .badge', { hasText: text }).waitFor();
const episodeAt = (id, query = '') => `#/runs/episodes/attempts/${id}${query}`;

export const servedTests = [
  ['served: a key is asked for, wrong ones are refused, and no address has it', async (context) => {
    const { page, address, requests } = context;
    await page.goto(base(address));
    await page.getByLabel('Key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    await page.getByLabel('Key').fill(KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: 'Try it' }).waitFor();
    await page.reload();
    await page.getByRole('link', { name: 'Try it' }).waitFor();
    check(!requests.some((url) => url.includes(KEY)), 'the key is in an address');
    check(!(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage))).includes('lis_page'), 'a script can read the session');
  }, { expected: ['401'] }],
  ['served: a task with a dropped file is started, watched to its end, and its files are shown', async (context) => {
    const { page, model } = context;
    await start(context, 'Add up all numbers. script: sums', { 'sums.csv': 'a,b\n1,2\n7,11\n' });
    await see(page, 'I read the numbers first.');
    await see(page, '7,11');
    await see(page, 'Adding them up with a program.');
    await model.reached('sums');
    await state(page, 'running');
    // The turn that waits has no end yet; what came before is here without a reload.
    equal(await page.locator('.turn').count(), 2, 'turns so far');
    model.open('sums');
    await state(page, 'submitted');
    const changed = page.locator('.turn[aria-label="Turn 2"]').getByRole('button', { name: '2 files changed' });
    await changed.click();
    await page.locator('.change', { hasText: 'sum.py' }).locator('.diff-new', { hasText: 'import csv' }).waitFor();
    await page.locator('.change-head', { hasText: '/testbed/output/answer.txt' }).getByText('created').waitFor();
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.getByRole('link', { name: /answer.txt/ }).click();
    await page.locator('.preview', { hasText: '21' }).waitFor();
    await page.getByRole('link', { name: /sums.csv/ }).click();
    await page.getByRole('cell', { name: '11' }).waitFor();
  }, { expected: ['401'] }],
  ['served: text of the model is shown while it streams', async (context) => {
    const { page, model } = context;
    await start(context, 'Speak slowly. script: streams');
    await model.reached('streams-1');
    await page.locator('.partial', { hasText: 'The answer' }).waitFor();
    check(!(await page.locator('.partial').textContent()).includes('comes in'), 'nothing is shown before it is said');
    model.open('streams-1');
    await page.locator('.partial', { hasText: 'The answer comes in' }).waitFor();
    model.open('streams-2');
    model.open('streams-3');
    await page.locator('.turn[aria-label="Turn 1"]', { hasText: 'The answer comes in pieces.' }).waitFor();
    await state(page, 'submitted');
    equal(await page.locator('.partial').count(), 0, 'the text is shown once');
  }, { expected: ['401'] }],
  ['served: cancel, fork from a turn, resume', async (context) => {
    const { page, model, address } = context;
    const id = await start(context, 'Write three steps. script: waits');
    await see(page, 'Second step.');
    await model.reached('waits');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await state(page, 'cancelled');
    model.open('waits');
    // From the first turn: the fork has its own copy of the files, with one line.
    await page.locator('.turn[aria-label="Turn 1"]').getByRole('button', { name: /Fork from here/ }).click();
    await page.waitForURL((url) => /attempts\/ep_/.test(url.hash) && !url.hash.includes(id));
    await settled(page, 'submitted');
    await page.getByRole('link', { name: 'Fork of turn 1' }).waitFor();
    await page.locator('.turn[aria-label="Turn 3"]', { hasText: /one\s+two\s+three/ }).waitFor();
    await page.goto(base(address) + episodeAt(id));
    await state(page, 'cancelled');
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.locator('.turn', { hasText: 'Third step.' }).waitFor();
    await settled(page, 'submitted');
    await page.getByRole('link', { name: /^Files/ }).click();
    await page.locator('.preview', { hasText: /one\s*two\s*three/ }).waitFor();
    // The list of episodes has all of them.
    await page.goto(`${base(address)}#/runs/episodes`);
    await see(page, 'Write three steps.');
  }, { expected: ['401'] }],
  ['served: a terminal: typing, colours, size, end', async (context) => {
    const { page } = context;
    await enter(context, '#/terminal');
    await page.getByRole('button', { name: 'New sandbox' }).click();
    await page.locator('.xterm-rows').waitFor();
    const shows = (text) => page.waitForFunction((wanted) => document.querySelector('.xterm-rows')?.textContent?.replaceAll('\u00a0', ' ').includes(wanted), text);
    await page.waitForFunction(() => /[$#]/.test(document.querySelector('.xterm-rows')?.textContent ?? ''));
    await page.locator('.xterm-helper-textarea').focus();
    await page.keyboard.type('echo $((6*7))-jk?\n');
    await shows('42-jk?');
    await page.keyboard.type('printf "\\033[31mred\\033[0m\\n"; stty size\n');
    await page.locator('.xterm-rows span.xterm-fg-1', { hasText: 'red' }).waitFor();
    const rows = await page.evaluate(() => document.querySelectorAll('.xterm-rows > div').length);
    await shows(`${rows} `);
    await page.keyboard.type('sh -c "echo $((5*5))-begun; sleep 1000"\n');
    // Before it runs, the keys would reach the shell alone.
    await shows('25-begun');
    await page.keyboard.press('Control+c');
    await page.keyboard.type('echo $?-ended\n');
    await shows('130-ended');
    await page.keyboard.type('exit 3\n');
    await see(page, 'The shell ended with status 3.');
    await page.getByRole('button', { name: 'Connect again' }).click();
    await page.waitForFunction(() => /[$#] *$/.test(document.querySelector('.xterm-rows')?.textContent?.replaceAll('\u00a0', ' ').trimEnd() ?? ''));
    await page.getByRole('button', { name: /^End sandbox/ }).click();
    await page.getByRole('dialog', { name: 'End the sandbox?' }).getByRole('button', { name: 'End it' }).click();
    await see(page, 'No sandbox is running');
  }, { expected: ['401', 'WebSocket'] }],
  ['served: phone width, dark, accessibility', async (context) => {
    const { page, model } = context;
    model.open('sums');
    await start(context, 'Add up. script: sums', { 'sums.csv': 'a\n21\n' });
    await state(page, 'submitted');
    for (const hash of [page.url().replace(/^[^#]*/, ''), '#/try', '#/terminal', '#/runs', '#/runs/episodes']) {
      await page.goto(base(context.address) + hash);
      await page.waitForFunction(() => document.querySelector('h1, .state h2') && !document.querySelector('.loading, .ghost-turn'));
      check(!(await overflows(page)), `${hash} is too wide`);
      await accessible(page, hash);
    }
  }, { viewport: { width: 390, height: 844 }, colorScheme: 'dark', expected: ['401'] }],
  ['served: a server that crashes leaves its episodes interrupted; they are resumed', async (context) => {
    const { page, model, restart, address } = context;
    const id = await start(context, 'Write three steps again. script: crash');
    await see(page, 'Second step.');
    await model.reached('crash');
    await restart();
    model.open('crash');
    await page.getByText('connection lost').waitFor();
    await page.goto('about:blank');
    await enter(context, episodeAt(id));
    await state(page, 'interrupted');
    await page.getByRole('button', { name: 'Resume' }).click();
    await state(page, 'submitted');
    check(address === context.address, 'the address stays');
  }, { alone: true, expected: ['401', 'ERR_', 'Failed to load'] }],
];
