"""Sandboxes: commands, files, limits, and their ends."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
import urllib.request
from pathlib import Path

import pytest

import llm_in_sandbox as lis
from llm_in_sandbox import CommandError, Sandbox, SandboxPool


def test_runs_programs(shared: Sandbox) -> None:
    result = shared.run(["printf", "%s|", "a b", "c"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a b|c|", "")
    assert result.ok and not result.timed_out and not result.truncated and result.duration > 0
    assert shared.run("echo $X; pwd", env={"X": "1"}, cwd="/tmp").stdout == "1\n/tmp\n"
    assert shared.run("cat", stdin=b"\xff\x00").stdout_bytes == b"\xff\x00"
    assert shared.run("kill -9 $$").exit_code == 137
    assert "\ufffd" in shared.run(r"printf '\xff'").stdout


def test_the_shell_keeps_its_state(sandbox: Sandbox) -> None:
    sandbox.shell("cd /tmp; x=1; f() { echo f$x; }")
    assert sandbox.shell("pwd; f").stdout == "/tmp\nf1\n"
    assert sandbox.run("echo $x").stdout == "\n"
    late = sandbox.shell("x=2; sleep 60", timeout=0.2)
    assert late.timed_out and late.exit_code is None and late.limit == "timeout"
    assert sandbox.shell("echo $x").stdout == "1\n"


def test_checked_commands_raise(shared: Sandbox) -> None:
    with pytest.raises(CommandError, match="`false` exited with 1") as caught:
        shared.run(["false"], check=True)
    assert caught.value.result.exit_code == 1
    with pytest.raises(CommandError, match="was stopped after 0.1"):
        shared.shell("sleep 9", timeout=0.1, check=True)
    assert shared.run("true", check=True).ok


def test_long_output_is_cut_in_the_middle(shared: Sandbox) -> None:
    result = shared.run("seq 100000", max_output=1000)
    assert result.truncated and len(result.stdout_bytes) == 1000
    assert result.stdout.startswith("1\n2\n") and result.stdout.endswith("100000\n")
    assert "bytes omitted" in result.stdout


def test_files(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.write("a/b.txt", "text")
    sandbox.write("/tmp/x.sh", b"#!/bin/sh\necho hi\n", mode=0o755)
    assert sandbox.run("/tmp/x.sh").stdout == "hi\n"
    assert sandbox.read("a/b.txt") == b"text" and sandbox.read_text("/testbed/a/b.txt") == "text"
    sandbox.mkdir("a/c/d")
    entries = sandbox.list("a")
    assert [(entry.name, entry.kind, entry.size) for entry in entries] == [
        ("b.txt", "file", 4),
        ("c", "directory", 0),
    ]
    assert entries[1].is_dir
    with pytest.raises(FileNotFoundError) as caught:
        sandbox.read("missing")
    assert isinstance(caught.value, lis.PathNotFound) and caught.value.filename == "/testbed/missing"
    with pytest.raises(lis.PathError):
        sandbox.read("a")
    with pytest.raises(lis.PathError, match="File too large"):
        sandbox.read("/dev/zero" if False else "a/b.txt", max_bytes=3)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/f").write_text("1")
    assert sandbox.upload(tmp_path / "tree", "up").files == 1
    sandbox.run("echo 2 > up/g; ln -s /etc/passwd up/link", check=True)
    report = sandbox.download("up", tmp_path / "down")
    assert report.files == 2 and report.skipped_count == 1
    assert (tmp_path / "down/g").read_text() == "2\n" and not (tmp_path / "down/link").exists()
    with pytest.raises(FileNotFoundError):
        sandbox.upload(tmp_path / "missing", "x")


def test_limits(tmp_path: Path) -> None:
    with Sandbox(memory="64M", processes=32, env={"A": "b"}, workdir="/work") as sandbox:
        assert sandbox.run("echo $A; pwd").stdout == "b\n/work\n"
        assert sandbox.workdir == "/work"
        eaten = sandbox.run("head -c 300M /dev/zero | tail", timeout=60)
        assert not eaten.ok
        assert eaten.out_of_memory or "memory" in eaten.stderr


def test_the_network_is_off(shared: Sandbox) -> None:
    devices = shared.run("tail -n +3 /proc/net/dev").stdout.splitlines()
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


def test_forks_and_snapshots(sandbox: Sandbox) -> None:
    sandbox.write("x", "1")
    with sandbox.fork() as other:
        assert other.read("x") == b"1" and other.id != sandbox.id
    sandbox.snapshot("python-test")
    with Sandbox("python-test") as third:
        assert third.read("x") == b"1"


def test_ports_are_exposed_until_the_end() -> None:
    with Sandbox() as sandbox:
        sandbox.write("index.html", "inside")
        sandbox.shell("(python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &) ; for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && break; sleep 0.05; done")
        url = sandbox.expose(8000)
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.read() == b"inside"
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=10)


def test_protection_is_reported(shared: Sandbox) -> None:
    assert shared.protection["runtime"] == "native"


def test_use_after_close() -> None:
    sandbox = Sandbox()
    with sandbox:
        assert not sandbox.closed
    assert sandbox.closed and "closed" in repr(sandbox)
    for use in (
        lambda: sandbox.run("true"),
        lambda: sandbox.shell("true"),
        lambda: sandbox.read("x"),
        lambda: sandbox.write("x", ""),
        lambda: sandbox.fork(),
        lambda: sandbox.expose(80),
    ):
        with pytest.raises(lis.SandboxClosed, match=sandbox.id):
            use()
    sandbox.close()


def test_closing_ends_commands_of_other_threads() -> None:
    sandbox = Sandbox()
    caught: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.run("sleep 60")
        except lis.SandboxClosed as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    sandbox.close()
    thread.join(5)
    assert len(caught) == 1


def test_garbage_is_collected() -> None:
    sandbox = Sandbox()
    name = sandbox.id
    keep = Sandbox()
    del sandbox
    gc.collect()
    deadline = time.monotonic() + 10
    runs = os.path.join(os.environ["LLM_IN_SANDBOX_HOME"], "run")
    while os.path.isdir(runs) and any(name in files for _, files, _ in os.walk(runs)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    keep.close()


def test_wrong_arguments() -> None:
    for wrong, message in (
        ({"memory": "lots"}, "memory"),
        ({"memory": 1}, "memory"),
        ({"cpus": -1}, "cpus"),
        ({"network": "wifi"}, "network"),
        ({"network": []}, "empty"),
        ({"network": ["a b"]}, "network"),
        ({"runtime": "vm"}, "runtime"),
        ({"workdir": "relative"}, "working directory"),
        ({"env": {"A=": "x"}}, "environment variable"),
        ({"image": "no-such-image"}, "no-such-image"),
        ({"stall_timeout": -1.0}, "stall_timeout"),
    ):
        with pytest.raises(lis.UsageError, match=message):
            Sandbox(**wrong)  # type: ignore[arg-type]
    for wrong in ({"memory": True}, {"memory": []}, {"cpus": "x"}, {"env": 3}, {"env": {"A": 1}}, {"image": 3}):
        with pytest.raises(TypeError):
            Sandbox(**wrong)  # type: ignore[arg-type]
    with pytest.raises(lis.ImageNotFound):
        Sandbox("no-such-image")
    with pytest.raises(TypeError):
        Sandbox(colour="red")  # type: ignore[call-arg]


def test_wrong_calls(shared: Sandbox) -> None:
    for wrong in (
        lambda: shared.run(3),  # type: ignore[arg-type]
        lambda: shared.run(b"ls"),  # type: ignore[arg-type]
        lambda: shared.run([1]),  # type: ignore[list-item]
        lambda: shared.shell(None),  # type: ignore[arg-type]
        lambda: shared.run("x", timeout="1"),  # type: ignore[arg-type]
        lambda: shared.write("x", 1),  # type: ignore[arg-type]
        lambda: shared.run("cat", stdin=3),  # type: ignore[arg-type]
        lambda: shared.read(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (
        lambda: shared.run([]),
        lambda: shared.run(["a\0b"]),
        lambda: shared.shell("a\0b"),
        lambda: shared.run("x", timeout=-1),
        lambda: shared.run("x", timeout=float("nan")),
        lambda: shared.expose(0),
    ):
        with pytest.raises(lis.UsageError):
            wrong()
    assert shared.run("true").ok


def test_exceptions_can_be_pickled(shared: Sandbox) -> None:
    errors: list[lis.SandboxError] = []
    for fail in (
        lambda: Sandbox("no-such-image"),
        lambda: shared.read("missing"),
        lambda: shared.run("echo no >&2; exit 3", check=True),
    ):
        with pytest.raises(lis.SandboxError) as caught:
            fail()
        errors.append(caught.value)
    errors += [lis.StalledError("x"), lis.ModelError("y"), lis.SandboxClosed("z")]
    for error in errors:
        same = pickle.loads(pickle.dumps(error))
        assert type(same) is type(error) and str(same) == str(error)
        assert vars(same) == vars(error)


def test_sandboxes_cannot_be_pickled(shared: Sandbox) -> None:
    with pytest.raises(TypeError, match="belongs to this process"):
        pickle.dumps(shared)
    with SandboxPool(1) as pool, pytest.raises(TypeError, match="belongs to this process"):
        pickle.dumps(pool)


def test_pools() -> None:
    with SandboxPool(2, memory="256M") as pool:
        with pool.take() as first, pool.take() as second:
            assert first.id != second.id and first.run("echo 1").stdout == "1\n"
    assert pool.closed
    with pytest.raises(lis.SandboxClosed, match="pool"):
        pool.take()
    pool.close()
    with pytest.raises(lis.UsageError):
        SandboxPool(0)
    with pytest.raises(TypeError):
        SandboxPool("2")  # type: ignore[arg-type]


def test_many_threads() -> None:
    def work(number: int) -> None:
        with Sandbox() as sandbox:
            for i in range(3):
                assert sandbox.run(f"echo {number} {i}").stdout == f"{number} {i}\n"
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(16))
