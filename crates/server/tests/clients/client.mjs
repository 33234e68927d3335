// The npm package: commands, files, watching, terminals.
import assert from 'node:assert/strict'

const { Sandbox, CommandExitError, FileType } = await import(
  `${process.env.E2B_PACKAGE}/node_modules/e2b/dist/index.mjs`
)

const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { kind: 'js' } })
const result = await box.commands.run('echo out; echo err >&2')
assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
await assert.rejects(box.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)

const cat = await box.commands.run('cat', { background: true, stdin: true })
await box.commands.sendStdin(cat.pid, 'x\n')
await box.commands.closeStdin(cat.pid)
assert.equal((await cat.wait()).stdout, 'x\n')

await box.files.write('a/b.txt', 'hi')
assert.equal(await box.files.read('a/b.txt'), 'hi')
assert.deepEqual((await box.files.list('a')).map((e) => [e.name, e.type]), [['b.txt', FileType.FILE]])
assert.equal(await box.files.exists('nope'), false)

const events = []
const watch = await box.files.watchDir('a', (event) => events.push(event))
await box.files.write('a/c.txt', '1')
while (!events.some((event) => event.name === 'c.txt' && event.type === 'write')) {
  await new Promise((resolve) => setTimeout(resolve, 20))
}
await watch.stop()

let screen = ''
const terminal = await box.pty.create({
  cols: 80,
  rows: 24,
  onData: (data) => (screen += new TextDecoder().decode(data)),
})
await box.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((20+3)); exit\n'))
await terminal.wait()
assert.match(screen, /23/)

const other = await Sandbox.connect(box.sandboxId)
assert.equal((await other.commands.run('cat a/b.txt')).stdout, 'hi')
assert.equal(await box.kill(), true)
assert.equal(await box.isRunning(), false)
console.log('done')
process.exit(0)
