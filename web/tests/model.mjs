// A model behind OpenAI's protocol for the tests of `serve`. The task says which part it plays (`script: NAME`), and the
// conversation says how far it is, so a resumed or forked episode goes on where it should. A step may wait at a gate until a
// test opens it: tests wait for states, never for a time.
import { createServer } from 'node:http';

const bash = (command) => ({ name: 'execute_bash', arguments: { command } });
const submit = { name: 'submit', arguments: {} };

/** What the model does, by script and turn, from 0. */
const SCRIPTS = {
  sums: [
    { text: 'I read the numbers first.', call: bash('cat /testbed/input/sums.csv') },
    { text: 'Adding them up with a program.', call: bash("printf 'import csv\\nrows = list(csv.reader(open(\"/testbed/input/sums.csv\")))\\nopen(\"/testbed/output/answer.txt\", \"w\").write(str(sum(int(v) for r in rows[1:] for v in r)))\\n' > sum.py; python3 sum.py || echo 21 > /testbed/output/answer.txt") },
    { gate: 'sums', call: submit },
  ],
  waits: [
    { text: 'First step.', call: bash('echo one > /testbed/output/steps.txt') },
    { text: 'Second step.', call: bash('echo two >> /testbed/output/steps.txt; cat /testbed/output/steps.txt') },
    { gate: 'waits', text: 'Third step.', call: bash('echo three >> /testbed/output/steps.txt; cat /testbed/output/steps.txt') },
    { call: submit },
  ],
  crash: [
    { text: 'First step.', call: bash('echo one > /testbed/output/steps.txt') },
    { text: 'Second step.', call: bash('echo two >> /testbed/output/steps.txt') },
    { gate: 'crash', call: submit },
  ],
  streams: [
    { pieces: [['The answer ', 'streams-1'], ['comes in ', 'streams-2'], ['pieces.', 'streams-3']], call: bash('echo 42 > /testbed/output/answer.txt') },
    { call: submit },
  ],
};

/** Starts the model. `reached` waits until a step is at its gate, `open` lets it and all later ones pass. */
export async function model() {
  const gates = new Map();
  const gate = (name) => {
    if (!gates.has(name)) {
      const made = { waiting: 0 };
      made.opened = new Promise((done) => { made.open = done; });
      made.reached = new Promise((done) => { made.arrive = done; });
      gates.set(name, made);
    }
    return gates.get(name);
  };
  const pass = async (name) => {
    if (!name) return;
    gate(name).arrive();
    await gate(name).opened;
  };
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    if (!request.url.endsWith('/chat/completions')) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      return response.end(JSON.stringify({ object: 'list', data: [{ id: 'mock', object: 'model' }] }));
    }
    const { messages, stream } = JSON.parse(body);
    const text = JSON.stringify(messages.filter((m) => m.role === 'user'));
    const script = SCRIPTS[/script: (\w+)/.exec(text)?.[1] ?? ''] ?? SCRIPTS.sums;
    const turn = messages.filter((m) => m.role === 'assistant').length;
    const step = script[Math.min(turn, script.length - 1)];
    response.on('error', () => undefined);
    await pass(step.gate);
    const usage = { prompt_tokens: 900 + turn * 60, completion_tokens: 24, total_tokens: 924 + turn * 60 };
    const call = { id: `call_${turn}`, type: 'function', function: { name: step.call.name, arguments: JSON.stringify(step.call.arguments) } };
    const envelope = (object, choices) => ({ id: `c${turn}`, object, created: 1, model: 'mock', choices });
    if (!stream) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      return response.end(JSON.stringify({ ...envelope('chat.completion', [{ index: 0, message: { role: 'assistant', content: step.text ?? null, tool_calls: [call] }, finish_reason: 'tool_calls' }]), usage }));
    }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const say = (delta, finish = null) => response.write(`data: ${JSON.stringify(envelope('chat.completion.chunk', [{ index: 0, delta, finish_reason: finish }]))}\n\n`);
    say({ role: 'assistant', content: '' });
    for (const [piece, name] of step.pieces ?? (step.text ? [[step.text]] : [])) {
      say({ content: piece });
      await pass(name);
    }
    say({ tool_calls: [{ index: 0, ...call }] });
    say({}, 'tool_calls');
    response.write(`data: ${JSON.stringify({ ...envelope('chat.completion.chunk', []), usage })}\n\n`);
    response.end('data: [DONE]\n\n');
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return {
    address: `http://127.0.0.1:${server.address().port}/v1`,
    reached: (name) => gate(name).reached,
    open: (name) => gate(name).open(),
    close: () => { server.closeAllConnections(); server.close(); },
  };
}
