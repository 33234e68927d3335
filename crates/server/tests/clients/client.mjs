// The npm package: commands, files, watching, terminals.
import assert from 'node:assert/strict'
import http from 'node:http'

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

// A server in the sandbox, at the address that the package gives.
await box.commands.run('echo hello > page.txt; python3 -m http.server 8000', { background: true })
const host = box.getHost(8000)
const port = host.split(':')[1]
assert.equal(host, `8000-${box.sandboxId}.localhost:${port}`)
// Not every resolver knows that names below localhost are this machine.
const get = () =>
  new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path: '/page.txt', headers: { Host: host } }
    const request = http.get(options, async (response) => {
      let text = ''
      for await (const piece of response) text += piece
      resolve([response.statusCode, text])
    })
    request.on('error', reject)
  })
let answer
while ((answer = await get())[0] === 502) await new Promise((resolve) => setTimeout(resolve, 50))
assert.deepEqual(answer, [200, 'hello\n'])

const other = await Sandbox.connect(box.sandboxId)
assert.equal(other.getHost(8000), host)
assert.equal((await other.commands.run('cat a/b.txt')).stdout, 'hi')
assert.equal(await box.kill(), true)
assert.equal(await box.isRunning(), false)
console.log('done')
process.exit(0)
