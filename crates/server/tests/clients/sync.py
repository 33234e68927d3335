"""Uses every part of the synchronous client; fails at the first surprise."""
import http.client
import io
import os
import time
import urllib.error
import urllib.request
import uuid

from e2b import (
    CommandExitException, FileNotFoundException, FilesystemEventType, FileType, PtySize, Sandbox,
    SandboxException, SandboxNotFoundException, SandboxQuery, SandboxState, TimeoutException,
)


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


box = Sandbox.create(timeout=120, metadata={"kind": "test a&b"}, envs={"GREETING": "hello"})
assert box.is_running()

# Commands: output, both streams, exit codes, environment, users, working directories.
result = box.commands.run("echo $GREETING; echo oops >&2")
assert (result.stdout, result.stderr, result.exit_code) == ("hello\n", "oops\n", 0), result
error = raises(CommandExitException, lambda: box.commands.run("echo a; exit 7"))
assert (error.exit_code, error.stdout) == (7, "a\n")
home = box.commands.run("pwd").stdout.strip()
assert box.commands.run("echo $A", envs={"A": "1"}).stdout == "1\n"
assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
assert box.commands.run("id -un", user="root").stdout == "root\n"
bytes_seen = []
box.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", on_stdout=bytes_seen.append)
assert "".join(bytes_seen) == "1\n2\n3\n", bytes_seen
long = box.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout
assert long == "x" * 3000000
raises(TimeoutException, lambda: box.commands.run("sleep 30", timeout=1))

# Background: input, list, reconnect, kill.
cat = box.commands.run("cat; echo end", background=True, stdin=True)
# The command whose time was up ends a moment after its client has left.
while len(running := [p.pid for p in box.commands.list()]) > 1:
    time.sleep(0.05)
assert running == [cat.pid]
box.commands.send_stdin(cat.pid, "one\n")
box.commands.close_stdin(cat.pid)
assert cat.wait().stdout == "one\nend\n"
sleeper = box.commands.run("sleep 60", background=True)
assert box.commands.kill(sleeper.pid) and not box.commands.kill(999999)
raises(CommandExitException, lambda: box.commands.run(f"kill -0 {sleeper.pid}"))
talker = box.commands.run("sleep 0.5; echo later", background=True)
talker.disconnect()
assert box.commands.connect(talker.pid).wait().stdout == "later\n"


# A terminal.
seen = bytearray()
terminal = box.pty.create(size=PtySize(rows=24, cols=80))
box.pty.send_stdin(terminal.pid, b"stty size; echo $((40+2))\n")
box.pty.resize(terminal.pid, PtySize(rows=50, cols=120))
box.pty.send_stdin(terminal.pid, b"sleep 0.2; stty size; exit\n")
terminal.wait(on_pty=seen.extend)
assert b"42" in seen and b"50 120" in seen, seen

# Files: text, bytes, streams, gzip, metadata, lists, moves.
info = box.files.write("notes/a.txt", "h\u00e9llo", metadata={"Author": "me"})
assert info.path == f"{home}/notes/a.txt" and info.name == "a.txt", info
assert box.files.read("notes/a.txt") == "h\u00e9llo"
assert box.files.get_info("notes/a.txt").metadata == {"author": "me"}
blob = bytes(range(256)) * 4096
box.files.write("blob", io.BytesIO(blob))
assert bytes(box.files.read("blob", format="bytes")) == blob
assert b"".join(box.files.read("blob", format="stream")) == blob
box.files.write("zipped", blob, gzip=True)
assert bytes(box.files.read("zipped", format="bytes", gzip=True)) == blob
assert [e.name for e in box.files.list("notes")] == ["a.txt"]
assert {e.path for e in box.files.list(".", depth=2)} >= {f"{home}/notes", f"{home}/notes/a.txt"}
entry = box.files.get_info("notes")
assert entry.type == FileType.DIR and entry.permissions.startswith("drwx"), entry
assert box.files.make_dir("new/deep") and not box.files.make_dir("new/deep")
assert box.files.rename("notes/a.txt", "new/b.txt").path == f"{home}/new/b.txt"
assert box.files.exists("new/b.txt") and not box.files.exists("notes/a.txt")
box.files.remove("new")
raises(FileNotFoundException, lambda: box.files.read("new/b.txt"))
raises(FileNotFoundException, lambda: box.files.list("new"))
box.commands.run("ln -s /etc/hostname link")
assert box.files.get_info("link").symlink_target == "/etc/hostname"

# Watching.
watch = box.files.watch_dir(".", recursive=True)
box.files.write("watched.txt", "1")
events = []
# They may arrive a moment after the answer to the request that caused them.
while ("watched.txt", FilesystemEventType.WRITE) not in events:
    events += [(e.name, e.type) for e in watch.get_new_events()]
    assert {name for name, _ in events} <= {"watched.txt"}, events
watch.stop()
raises(FileNotFoundException, lambda: box.files.watch_dir("missing"))

# Ports: a server in the sandbox, at the address that the package gives.
box.commands.run("echo hello > page.txt; python3 -m http.server 8000", background=True)
host = box.get_host(8000)
name, port = host.rsplit(":", 1)
assert host == f"8000-{box.sandbox_id}.localhost:{port}", host


def get(host):
    # Not every resolver knows that names below localhost are this machine.
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request("GET", "/page.txt", headers={"Host": host})
    response = connection.getresponse()
    return response.status, response.read()


while (answer := get(host))[0] == 502:
    time.sleep(0.05)
assert answer == (200, b"hello\n"), answer
assert Sandbox.connect(box.sandbox_id).get_host(8000) == host

# Signed addresses.
with urllib.request.urlopen(box.download_url("watched.txt")) as response:
    assert response.read() == b"1"
late = raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(
    box.download_url("watched.txt", use_signature_expiration=-100)))
assert late.code == 401

# Control: info, lists, time limits, pause, fork, snapshots.
info = box.get_info()
assert info.template_id == "base" and info.metadata == {"kind": "test a&b"}
ids = lambda query: [s.sandbox_id for s in Sandbox.list(query=query).next_items()]
assert ids(SandboxQuery(metadata={"kind": "test a&b"})) == [box.sandbox_id]
assert ids(SandboxQuery(metadata={"kind": "other"})) == []
box.set_timeout(300)
assert box.get_info().end_at > info.end_at
# Seconds since the machine started: nobody sets this clock.
tick = "read s rest < /proc/uptime; echo $s >> ticks; sleep 0.05"
box.commands.run(f"nohup sh -c 'while :; do {tick}; done' >/dev/null 2>&1 &")
# The shell makes the file before it has written to it.
while not box.files.exists("ticks") or not box.files.read("ticks").strip():
    time.sleep(0.05)
box.pause()
assert not box.is_running()
assert ids(SandboxQuery(state=[SandboxState.PAUSED])) == [box.sandbox_id]
time.sleep(0.5)
box.connect()
assert box.is_running()
lines = lambda: [float(t) for t in box.files.read("ticks").split()]
after = float(box.commands.run("cat /proc/uptime").stdout.split()[0])
while not any(t > after for t in lines()):
    time.sleep(0.05)
ticks = lines()
gaps = [round(b - a, 2) for a, b in zip(ticks, ticks[1:])]
# The others are those of a busy machine.
assert max(gaps) > 0.4, f"it ran while it was paused for 0.5 s before {after}: {ticks[-40:]}"
copies = box.fork(count=2)
for copy in copies:
    assert copy.get_host(80) == f"80-{copy.sandbox_id}.{name.split('.', 1)[1]}:{port}"
    assert copy.files.read("watched.txt") == "1"
    copy.files.write("watched.txt", "2")
    copy.kill()
assert box.files.read("watched.txt") == "1"
snapshot = box.create_snapshot()
assert snapshot.snapshot_id in [s.snapshot_id for s in Sandbox.list_snapshots().next_items()]
second = Sandbox.create(snapshot.snapshot_id, timeout=60)
assert second.files.read("watched.txt") == "1"
second.kill()
assert Sandbox.delete_snapshot(snapshot.snapshot_id)

# A request that is sent again is answered as before; another one with its key is refused.
key = str(uuid.uuid4())
first, again = (Sandbox.create(timeout=60, idempotency_key=key) for _ in range(2))
assert first.sandbox_id == again.sandbox_id
error = raises(SandboxException, lambda: Sandbox.create(timeout=61, idempotency_key=key))
assert error.status_code == 422 and "Idempotency-Key" in str(error), error
assert again.kill() and not first.kill()

# Many at once, and paging.
many = [Sandbox.create(timeout=60, metadata={"many": "yes"}) for _ in range(5)]
pages = Sandbox.list(query=SandboxQuery(metadata={"many": "yes"}), limit=2)
listed = []
while pages.has_next:
    listed += [s.sandbox_id for s in pages.next_items()]
assert sorted(listed) == sorted(b.sandbox_id for b in many) and len(listed) == 5
for other in many:
    assert other.kill() and not other.kill()

# The end: a killed sandbox ends its commands, and a time limit ends a sandbox.
short = Sandbox.create(timeout=1)
running = box.commands.run("sleep 60", background=True)
box.kill()
assert "killed or reached its end of life" in str(raises(TimeoutException, running.wait))
assert not box.is_running()
raises(SandboxNotFoundException, box.get_info)
while short.is_running():
    time.sleep(0.1)
print("done", flush=True)
# At once: threads of the package can crash the interpreter while it ends, after all has been checked.
os._exit(0)
