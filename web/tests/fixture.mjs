// Made-up records that have the shapes of the server's answers. The page is developed and tested with them where the
// program itself is not built; they are deterministic.
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const START = 1780000000000;

/** Random numbers that are the same every time. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const line = (at, kind, fields) => ({ v: 1, at, kind, ...fields });

/** Events of a trajectory in the reference's format. */
export function fromReference(trajectory, model = 'deepseek-v3.2') {
  let at = START;
  const events = [line(at, 'started', { problem_statement: trajectory.problem_statement, messages: [{ role: 'user', content: [{ type: 'text', text: trajectory.problem_statement }] }], model, settings: {}, protection: {}, program: '' })];
  let context = Math.round(trajectory.problem_statement.length / 4);
  trajectory.steps.forEach((step, i) => {
    const turn = i + 1;
    const millis = Math.round((step.metadata?.exec_time ?? 1) * 1000);
    const output = Math.round((step.thought.length + step.reasoning_content.length + JSON.stringify(step.action).length) / 4);
    at += millis;
    const call = { id: `call_${turn}`, name: step.action.function, arguments: step.action.parameters ?? {} };
    events.push(line(at, 'replied', { turn, message: { text: step.thought, reasoning: step.reasoning_content, calls: [call] }, stop: 'tool_calls', usage: { input: context, cached: Math.round(context * 0.8), output }, millis }));
    const exit = /^Exit code: (\d+)/.exec(step.observation);
    at += 150 + (i % 5) * 400;
    events.push(line(at, 'observed', { turn, message: { role: 'tool', call_id: call.id, name: call.name, content: [{ type: 'text', text: step.observation }] }, ...(exit ? { exit_code: Number(exit[1]) } : {}), millis: 150 + (i % 5) * 400 }));
    context += output + Math.round(step.observation.length / 4);
  });
  events.push(line(at, 'ended', { outcome: 'submitted', spent: { turns: trajectory.steps.length, usage: { input: context, output: 900 }, context, model_ms: at - START, tool_ms: 900 } }));
  return events;
}

/** An episode that is solved in a few turns, or not. */
export function shortEpisode(seed, solved, running = false) {
  const r = random(seed);
  let at = START + seed * 60000;
  const task = 'The file sales.csv in the input directory has one row per sale: date, region, product, units, price.\n\nWhich region had the highest revenue in 2025, and how large was it? Write the name and the amount, rounded to whole dollars, to answer.txt.';
  const steps = [
    ['Let me look at the data first.', 'I should check the columns and whether values are missing before computing anything.\nRevenue is units times price, filtered to 2025.', { command: 'cd /testbed/input && ls -la && head -5 sales.csv && wc -l sales.csv' }, 'total 412\ndrwxr-xr-x 2 root root   4096 Mar  3 10:12 .\ndrwxr-xr-x 4 root root   4096 Mar  3 10:12 ..\n-rw-r--r-- 1 root root 409713 Mar  3 10:12 sales.csv\ndate,region,product,units,price\n2024-01-02,North,anvil,3,19.50\n2024-01-02,West,rope,12,4.25\n2024-01-03,South,lamp,1,42.00\n2024-01-03,East,anvil,2,19.50\n12001 sales.csv\n', 0],
    ['', `Some prices may be ${solved ? 'empty' : 'missing'}. A quick check.`, { command: "python3 - <<'EOF'\nimport csv\nfrom collections import Counter\n\nbad = Counter()\nwith open('/testbed/input/sales.csv') as f:\n    for row in csv.DictReader(f):\n        for key, value in row.items():\n            if not value.strip():\n                bad[key] += 1\nprint(dict(bad))\nEOF" }, "{'price': 37, 'units': 4}\n", 0],
    ['41 rows lack a value. I skip them and note it.', '', { editor: 'create', path: '/testbed/revenue.py', file_text: "import csv\nfrom collections import defaultdict\n\ntotals = defaultdict(float)\nskipped = 0\nwith open('/testbed/input/sales.csv') as f:\n    for row in csv.DictReader(f):\n        if not row['date'].startswith('2025'):\n            continue\n        try:\n            totals[row['region']] += int(row['units']) * float(row['price'])\n        except ValueError:\n            skipped += 1\n\nfor region, amount in sorted(totals.items(), key=lambda item: -item[1]):\n    print(f'{region:8} {amount:12.2f}')\nprint('skipped', skipped)\n".replace('2025', solved ? '2025' : '2024') }, 'File created at /testbed/revenue.py.', null],
    ['', '', { command: 'python3 /testbed/revenue.py' }, solved ? '\u001b[1mWest    \u001b[0m \u001b[32m   812345.50\u001b[0m\nNorth       790112.25\nSouth       655390.00\nEast        640981.75\n\u001b[33mskipped 19\u001b[0m\n' : 'Traceback (most recent call last):\n  File "/testbed/revenue.py", line 11, in <module>\n    totals[row[\'region\']] += int(row[\'units\']) * float(row[\'price\'])\nKeyError: \'region\'\n', solved ? 0 : 1],
    ['West leads. Writing the answer.', '', { command: solved ? "echo 'West 812346' > /testbed/output/answer.txt && cat /testbed/output/answer.txt" : "echo 'North 790112' > /testbed/output/answer.txt" }, solved ? 'West 812346\n' : '', 0],
    ['', '', { submit: true }, 'Submitted.', null],
  ];
  const events = [line(at, 'started', {
    problem_statement: task, model: 'Qwen/Qwen3-32B',
    messages: [{ role: 'system', text: 'You work in a sandbox with a shell. Text outside tool calls is ignored. Write the answer to the file, then submit.' }, { role: 'user', content: [{ type: 'text', text: task }] }],
    settings: SETTINGS, protection: PROTECTION, program: '0.1.0',
  })];
  let input = 900;
  steps.slice(0, running ? 3 : steps.length).forEach(([text, reasoning, action, output, exit], i) => {
    const turn = i + 1;
    const millis = 900 + Math.round(r() * 6000);
    at += millis;
    const name = action.submit ? 'submit' : action.editor ? 'str_replace_editor' : 'execute_bash';
    const { editor, submit: _, ...rest } = action;
    const call = { id: `call_${turn}`, name, arguments: editor ? { command: editor, ...rest } : rest };
    const out = 60 + Math.round(r() * 500);
    events.push(line(at, 'replied', { turn, message: { text, ...(reasoning ? { reasoning } : {}), calls: [call] }, stop: 'tool_calls', usage: { input, cached: i === 0 ? 0 : input - 300, output: out, reasoning: reasoning ? 40 : 0 }, cost: 0.0011, millis }));
    const tool = 20 + Math.round(r() * 900);
    at += tool;
    events.push(line(at, 'observed', { turn, message: { role: 'tool', call_id: call.id, name, content: [{ type: 'text', text: output }] }, ...(exit === null ? {} : { exit_code: exit }), millis: tool }));
    input += out + Math.round(output.length / 4);
  });
  if (!running) events.push(line(at, 'ended', { outcome: 'submitted', spent: { turns: steps.length, usage: { input: input * 3, cached: input * 2, output: 1800, reasoning: 80 }, context: input, cost: 0.0066, model_ms: 21000, tool_ms: 2100 } }));
  return { events, task };
}

export const SETTINGS = {
  model: 'Qwen/Qwen3-32B', base_url: 'http://localhost:8000/v1', limits: { turns: 100, tokens: 65536, tokens_per_call: 8192, time: null, cost: null },
  sampling: { temperature: 0.6, top_p: 0.95 }, sandbox: { runtime: 'native', image: 'base', network: 'none', memory: '2G', processes: 256 }, tool_format: 'native',
};
export const PROTECTION = {
  user_namespace: true, network: 'none', seccomp: 'filter of 61 calls', cgroup: { memory: '2147483648', pids: 256, cpu: '2.0' }, file_system: 'overlay, read-only lower layer', no_new_privileges: true,
};

/** A trajectory that tries to do something. */
export function hostile() {
  const bad = '<script>window.pwned=1;alert(1)</script><img src=x onerror="window.pwned=2;alert(2)"><svg onload="window.pwned=3"><a href="javascript:window.pwned=4">click</a><iframe src="http://127.0.0.1:1/steal"></iframe><style>body{display:none}</style>\u202Egnp.exe\u202C \u200Bzero\u0000nul \u001b]8;;javascript:alert(3)\u0007link\u001b]8;;\u0007 \u001b[2J\u001b[31mred\u001b[0m \ud83d\ude00';
  const huge = `${'A'.repeat(5 * 1024 * 1024)}<script>window.pwned=5</script>`;
  let at = START;
  const events = [line(at, 'started', { problem_statement: bad, messages: [{ role: 'system', text: bad }, { role: 'user', content: [{ type: 'text', text: bad }] }], model: bad, settings: { [bad]: bad, limits: { [bad]: bad } }, protection: { [bad]: bad }, program: bad })];
  const calls = [
    { id: '1', name: 'execute_bash', arguments: { command: `echo "${bad}"` } },
    { id: '2', name: bad, arguments: { [bad]: bad } },
    { id: '3', name: 'str_replace_editor', arguments: { command: 'str_replace', path: `/testbed/${bad}.html`, old_str: bad, new_str: `${bad}\n${bad}` } },
    { id: '4', name: 'execute_bash', arguments: bad, why: bad },
    { id: '5', name: 'str_replace_editor', arguments: { command: 'create', path: '/x.js', file_text: `</span><script>window.pwned=6</script>\nconst a = "${bad}";` } },
  ];
  events.push(line(at, 'replied', { turn: 1, message: { text: bad, reasoning: bad, calls }, stop: 'tool_calls', usage: { input: 10, output: 10 }, millis: 5 }));
  for (const call of calls) events.push(line((at += 5), 'observed', { turn: 1, message: { role: 'tool', call_id: call.id, name: call.name, content: [{ type: 'text', text: bad }, { type: 'image', media_type: 'image/svg+xml', data: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="parent.pwned=7"/>').toString('base64') }, { type: 'image', media_type: 'text/html"><script>window.pwned=8</script>', data: 'x' }] }, exit_code: 0, millis: 3 }));
  events.push(line(at, 'changed', { turn: 1, directory: '/testbed', files: [{ path: `/testbed/${bad}.svg`, change: 'created', size: bad.length, text: bad }, { path: '/testbed/../../etc/passwd', change: 'modified', size: 3, text: `${bad}\n`, before: 'x' }, { path: '/testbed/big.bin', change: 'modified', size: 2 ** 50 }] }));
  events.push(line(at, 'replied', { turn: 2, message: { text: '', reasoning: huge, calls: [{ id: '9', name: 'execute_bash', arguments: { command: 'cat huge' } }] }, stop: 'tool_calls', usage: { input: 10, output: 10 }, millis: 5 }));
  events.push(line(at, 'observed', { turn: 2, message: { role: 'tool', call_id: '9', name: 'execute_bash', content: [{ type: 'text', text: huge }] }, exit_code: 0, millis: 3 }));
  events.push(line(at, 'changed', { turn: 2, files: [{ path: 7, change: 'exploded' }, bad] }));
  events.push(line(at, 'ended', { outcome: 'submitted', spent: { turns: 2, usage: { input: 20, output: 20 }, context: 20, model_ms: 10, tool_ms: 10 } }));
  return events;
}

/** An episode that was interrupted and resumed: its turns 2 and 3 were played twice, and write different files. */
export function resumed() {
  const events = [line(START, 'started', { problem_statement: 'Play some turns twice.', messages: [], model: 'mock', settings: {}, protection: {}, program: '0.1.0' })];
  const turn = (number, file) => {
    const call = { id: `${file}-${number}`, name: 'str_replace_editor', arguments: { command: 'create', path: `/testbed/${file}.txt`, file_text: `${file}\n` } };
    events.push(line(START + events.length * 1000, 'replied', { turn: number, message: { text: `This is ${file}.`, calls: [call] }, stop: 'tool_calls', usage: { input: 100, output: 10 }, millis: 500 }));
    events.push(line(START + events.length * 1000, 'observed', { turn: number, message: { role: 'tool', call_id: call.id, name: call.name, content: [{ type: 'text', text: 'created' }] }, millis: 5 }));
  };
  turn(1, 'one');
  turn(2, 'undone-two');
  turn(3, 'undone-three');
  events.push(line(START + 7000, 'resumed', { turn: 1 }));
  turn(2, 'two');
  turn(3, 'three');
  turn(4, 'four');
  events.push(line(START + 20000, 'ended', { outcome: 'submitted', spent: { turns: 4, usage: { input: 400, output: 40 }, context: 100, model_ms: 2000, tool_ms: 20 } }));
  return events;
}

/** An episode of turns that each run a command. */
export function commands(all) {
  const events = [line(START, 'started', { problem_statement: 'Work in parts.', messages: [], model: 'mock', settings: {}, protection: {}, program: '0.1.0' })];
  all.forEach((command, i) => {
    const call = { id: `c${i}`, name: 'execute_bash', arguments: { command } };
    events.push(line(START + i * 1000, 'replied', { turn: i + 1, message: { text: '', calls: [call] }, stop: 'tool_calls', usage: { input: 100, output: 10 }, millis: 500 }));
    events.push(line(START + i * 1000 + 500, 'observed', { turn: i + 1, message: { role: 'tool', call_id: call.id, name: call.name, content: [{ type: 'text', text: `[exit code 0]\n[stdout]\n${i}\n` }] }, exit_code: 0, millis: 5 }));
  });
  events.push(line(START + 1e7, 'ended', { outcome: 'submitted', spent: { turns: all.length, usage: { input: 1, output: 1 }, context: 1, model_ms: 1, tool_ms: 1 } }));
  return events;
}

/** Events whose fields have other types than they should. Every line is an object with a kind, as a careless program may write it. */
export function wrongTypes() {
  const call = (more) => ({ id: '1', name: 'execute_bash', arguments: { command: 'true' }, ...more });
  const replied = (turn, message, more = {}) => ({ v: 1, at: START + turn, kind: 'replied', turn, message, stop: 'tool_calls', usage: { input: 1, output: 1 }, millis: 1, ...more });
  const observed = (turn, message, more = {}) => ({ v: 1, at: START + turn, kind: 'observed', turn, message: { role: 'tool', call_id: '1', name: 'execute_bash', ...message }, millis: 1, ...more });
  return [
    { v: 1, at: START, kind: 'started', problem_statement: 'Fields of wrong types.', messages: 'not a list', model: 'mock', settings: 'text', protection: [1], program: '0.1.0' },
    replied(1, { text: 'content of an unknown part', calls: [call({})] }),
    observed(1, { content: [{ type: 'audio' }, null, 7, 'a bare text', { type: 'text' }, { type: 'image', data: 5 }] }),
    replied(2, { text: 'content that is a text', calls: [call({})] }),
    observed(2, { content: 'x' }),
    replied(3, { text: 'arguments that are null', calls: [call({ arguments: null })] }),
    observed(3, { content: null }),
    replied(4, { text: 'a call without a name', calls: [{ arguments: { path: '/a', old_str: 5, new_str: {} } }] }),
    observed(4, { call_id: undefined, content: [{ type: 'text', text: 'result of nothing' }] }),
    replied(5, { text: { of: 'an object' }, reasoning: [1], calls: [call({ arguments: { path: 7, command: [] } })] }, { stop: { other: 'x' }, cost: null }),
    { v: 1, at: START, kind: 'retried', turn: 5, why: { a: 1 }, wait_ms: 'soon', attempt: [] },
    { v: 1, at: START, kind: 'compacted', messages: {} },
    { v: 1, at: START, kind: 'changed', turn: 5, files: 'none' },
    { v: 1, at: START, kind: 'saved', image: { id: 1 } },
    replied(6, { text: 'the end', calls: [] }),
    { v: 1, at: START + 9, kind: 'ended', outcome: 'submitted', spent: 'little' },
  ];
}

export const HOSTILE_HTML = '<!doctype html><script>parent.pwned=9;fetch("page/api/runs").then(()=>parent.pwned=10)</script><body onload="top.pwned=11"><h1>A page of the model</h1><img src="http://127.0.0.1:1/beacon"><meta http-equiv="refresh" content="0;url=javascript:top.pwned=12">';
const ENTITIES = [...'abcdefghi'].map((name, i) => `<!ENTITY ${name} "${i === 0 ? 'ha'.repeat(10) : `&${'abcdefghi'[i - 1]};`.repeat(10)}">`).join('');
/** Ten to the ninth times two letters, once all entities are replaced. */
export const LAUGHS = `<?xml version="1.0"?><!DOCTYPE svg [${ENTITIES}]><svg xmlns="http://www.w3.org/2000/svg" width="200" height="80"><script>parent.pwned=13</script><text y="20">&i;</text></svg>`;

/** An event of a very long episode; made when it is asked for. */
export function longEvent(n) {
  const at = START + n * 1500;
  if (n === 1) return line(at, 'started', { problem_statement: 'Work for a very long time.', messages: [{ role: 'user', content: [{ type: 'text', text: 'Work for a very long time.' }] }], model: 'mock', settings: {}, protection: {}, program: '0.1.0' });
  const turn = n >> 1;
  const r = random(turn);
  if (n % 2 === 0) return line(at, 'replied', { turn, message: { text: turn % 7 === 0 ? `Step ${turn}: checking the next part.` : '', reasoning: turn % 3 === 0 ? 'A thought of some length. '.repeat(1 + (turn % 9)) : '', calls: [{ id: `c${turn}`, name: 'execute_bash', arguments: { command: `python3 work.py --part ${turn}` } }] }, stop: 'tool_calls', usage: { input: 1000 + (turn % 5000), cached: 900, output: 40 + Math.round(r() * 300) }, millis: 300 + Math.round(r() * 2000) });
  return line(at, 'observed', { turn, message: { role: 'tool', call_id: `c${turn}`, name: 'execute_bash', content: [{ type: 'text', text: Array.from({ length: 1 + (turn % 23) }, (_, i) => `line ${i + 1} of part ${turn}`).join('\n') }] }, exit_code: turn % 50 === 0 ? 1 : 0, millis: Math.round(r() * 400) });
}

/** The three trajectories of the reference that lie beside the workspace, where they do. */
export function references() {
  const dir = join(here, '../../../shared/data/trajectories');
  return ['chemical', 'math', 'poster'].filter((name) => existsSync(join(dir, `${name}.json`))).map((name) => ({ name, trajectory: JSON.parse(readFileSync(join(dir, `${name}.json`), 'utf8')) }));
}

/** Metrics of a training run. */
export function metrics(seed, steps) {
  const r = random(seed);
  const curve = (from, to, noise) => Array.from({ length: steps }, (_, i) => from + (to - from) * (1 - Math.exp((-3 * i) / steps)) + (r() - 0.5) * noise);
  const metric = (name, title, section, values) => ({ name, title, section, axis: 'mean per episode', values, se: null });
  return {
    steps: Array.from({ length: steps }, (_, i) => i + 1), bad_lines: 0, sets: ['gsm8k'],
    metrics: [
      metric('reward_mean', 'Mean reward', 'Rewards', curve(0.18, 0.7 + seed * 0.02, 0.12)),
      metric('success', 'Solved', 'Rewards', curve(0.15, 0.66 + seed * 0.02, 0.14)),
      metric('validation_success', 'Solved, validation set', 'Rewards', curve(0.2, 0.6 + seed * 0.03, 0.02).map((v, i) => (i % 10 === 9 ? v : null))),
      metric('turns_mean', 'Turns per episode', 'Episodes', curve(9, 5.2, 1.1)),
      metric('tokens_mean', 'Tokens per episode', 'Episodes', curve(3200, 2100 + seed * 100, 400)),
      metric('entropy', 'Entropy', 'Policy', curve(0.9, 0.35, 0.05)),
      metric('kl', 'Divergence from the start', 'Policy', curve(0, 0.08, 0.01)),
      metric('gradient_norm', 'Gradient norm', 'Policy', curve(1.4, 0.6, 0.5)),
      metric('loss', 'Loss', 'Policy', curve(0.4, 0.05, 0.2)),
    ],
  };
}

export { START };
