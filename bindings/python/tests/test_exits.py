"""Every way for an interpreter to end, in every situation: nothing hangs, nothing is left.

`LIS_ROUNDS` is the number of rounds, each with a kill at another moment (`cargo xtask python --rounds 50`).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Script, ended, gone

from llm_in_sandbox import Sandbox

ROUNDS = int(os.environ.get("LIS_ROUNDS", "1"))
#: Threads, and tasks of an event loop, that create and close sandboxes at the end.
MANY = 64 if ROUNDS > 1 else 16
#: Most seconds of an end. A hang takes forever; a busy machine does not.
MOST = 60.0

SITUATIONS = {
    # Sandboxes with background processes, and a pool that is being filled.
    "open": """
        kept = [lis.Sandbox() for _ in range(2)]
        kept[0].shell("sleep 1000 &")
        pool = lis.SandboxPool(2)
        ready(kept[0].id)
        """,
    # Daemon threads inside of calls, some of which never end by themselves.
    "threads": """
        kept = lis.Sandbox()
        def work(command):
            while True:
                try:
                    kept.run(command)
                except lis.SandboxError:
                    pass
        for command in ("true", "sleep 1000", "head -c 1M /dev/zero"):
            threading.Thread(target=work, args=(command,), daemon=True).start()
        ready(kept.id)
        """,
    # Many threads that create, use and close sandboxes.
    "many threads": f"""
        created = queue.SimpleQueue()
        def work():
            while True:
                try:
                    with lis.Sandbox() as one:
                        created.put(one.id)
                        one.run("true")
                except lis.SandboxError:
                    return
        for _ in range({MANY}):
            threading.Thread(target=work, daemon=True).start()
        ready(created.get())
        """,
    # Many tasks of an event loop that do the same.
    "many tasks": f"""
        async def work(created):
            while True:
                async with await lis.AsyncSandbox.create() as one:
                    await created.put(one.id)
                    await one.run("true")
        async def main():
            created = asyncio.Queue()
            tasks = [asyncio.create_task(work(created)) for _ in range({MANY})]
            ready(await created.get())
            if END != "return":
                end()
                await asyncio.sleep(1000)
        asyncio.run(main())
        """,
    # Tasks that are cancelled while they create sandboxes and run commands.
    "asyncio": """
        async def main():
            kept = await lis.AsyncSandbox.create()
            tasks = [asyncio.create_task(kept.run("sleep 1000")) for _ in range(4)]
            tasks += [asyncio.create_task(lis.AsyncSandbox.create()) for _ in range(4)]
            await asyncio.sleep(0.01)
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks[1:], return_exceptions=True)
            ready(kept.id)
            if END != "return":
                end()
                await asyncio.sleep(1000)
        asyncio.run(main())
        """,
    # A forked process with a sandbox of its own, which ends before or after this one.
    "fork": """
        kept = lis.Sandbox()
        reader, writer = os.pipe()
        if os.fork() == 0:
            own = lis.Sandbox()
            os.write(writer, own.id.encode())
            time.sleep(random.choice([0, 0.3]))
            os._exit(0)
        ready(kept.id, os.read(reader, 100).decode())
        """,
    "multiprocessing fork": """
        kept = lis.Sandbox()
        pool = multiprocessing.get_context("fork").Pool(2)
        ready(kept.id, *pool.map(one_sandbox, range(2)))
        """,
    "multiprocessing spawn": """
        kept = lis.Sandbox()
        pool = multiprocessing.get_context("spawn").Pool(1)
        ready(kept.id, *pool.map(one_sandbox, range(1)))
        """,
    # An episode whose model does not answer.
    "agent": """
        kept = lis.Sandbox()
        def model(messages, tools):
            ready(kept.id)
            if END != "return":
                end()
                time.sleep(1000)
            raise SystemExit(0)
        lis.Agent(model).run("x", files={"a": b"b"}, sandbox=kept)
        """,
    # The same in an event loop, where the model is called in a thread.
    "async agent": """
        async def main():
            kept = await lis.AsyncSandbox.create()
            asked = threading.Event()
            def model(messages, tools):
                asked.set()
                time.sleep(1000)
            task = asyncio.create_task(lis.Agent(model).arun("x", files={"a": b"b"}, sandbox=kept))
            while not asked.is_set():
                await asyncio.sleep(0.01)
            ready(kept.id)
            if END != "return":
                end()
                await asyncio.sleep(1000)
        asyncio.run(main())
        """,
    # A benchmark in another thread, whose model does not answer after the first command.
    "benchmark": """
        waits = threading.Event()
        def model(messages, tools):
            if messages[-1]["role"] == "user":
                call = {"name": "execute_bash", "arguments": {"command": "sleep 1000 & echo started"}}
                return {"content": "", "tool_calls": [{"id": "1", "function": call}]}
            waits.set()
            time.sleep(1000)
        rows = [{"id": "a", "problem_statement": "x", "ground_truth": "42"}]
        threading.Thread(target=lambda: lis.benchmark("math", model, data=rows), daemon=True).start()
        waits.wait()
        program = next(pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == os.getpid())
        ready(program, run_of(program) + "-1")
        """,
}
ENDS = ("return", "exception", "abort", "_exit", "kill")

PROGRAM = """
import asyncio, multiprocessing, os, queue, random, re, signal, sys, threading, time
import llm_in_sandbox as lis

END = sys.argv[1]

def one_sandbox(number):
    with lis.Sandbox() as sandbox:
        sandbox.run("true")
        return sandbox.id

def ready(*ids):
    print(" ".join(ids), flush=True)

def parent(pid):
    try:
        # Names of programs may be any bytes.
        with open(f"/proc/{{pid}}/stat", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None

def run_of(program):
    # Names of sandboxes, and so of their control groups, start with the process that they belong to.
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{{pid}}/cgroup", errors="replace") as file:
                found = re.search(f"(?<![0-9]){{program}}-[0-9a-f]+", file.read())
        except OSError:
            continue
        if found:
            return found.group()
    raise RuntimeError("the program has no sandbox")

def end():
    if END == "kill":
        return
    if END == "abort":
        # Without a dump of the whole process.
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    if END == "_exit":
        os._exit(0)
    if END == "exception":
        raise RuntimeError("the end of a test")

def main():
{situation}
    end()
    if END == "kill":
        time.sleep(1000)

if __name__ == "__main__":
    main()
"""


def left_in(directory: Path) -> list[str]:
    """What is left of temporary files, without those of `multiprocessing`."""
    return [name for name in os.listdir(directory) if not name.startswith("pymp-")]


def run_once(situation: str, end: str, number: int, directory: Path) -> None:
    """One process from its start to the moment when nothing of it is left."""
    base = directory / f"{situation.replace(' ', '-')}-{end}-{number}"
    base.mkdir()
    temporary = base / "tmp"
    temporary.mkdir()
    source = "\n".join("    " + line.strip("\n")[8:] for line in SITUATIONS[situation].strip("\n").splitlines())
    program = base / "program.py"
    program.write_text(PROGRAM.format(situation=source))
    run = Script(program, end, TMPDIR=str(temporary))
    what = f"{situation}, {end}, round {number}"
    try:
        names = run.line().split()
        assert names, f"{what}: {run.finish(MOST)}"
        if end == "kill":
            time.sleep(random.Random(number).uniform(0, 0.2))
            run.process.kill()
        code, _, err = run.finish(MOST)
    except subprocess.TimeoutExpired:
        run.process.kill()
        pytest.fail(f"{what}: hangs")
    expected = {"return": (0,), "exception": (1,), "abort": (-6,), "_exit": (0,), "kill": (-9,)}[end]
    assert code in expected, f"{what}: exit code {code}: {err}"
    assert "panicked" not in err and ("Fatal" not in err or end == "abort"), f"{what}: {err}"
    for name in names:
        assert ended(name, MOST) if name.isdigit() else gone(name, MOST), f"{what}: something of {name} is left"
    with open("/proc/self/mountinfo", errors="replace") as mounts:
        left = [line for line in mounts if str(base) in line or any(name.rsplit("-", 1)[0] in line for name in names)]
    assert not left, f"{what}: {left}"
    # What a killed process cannot remove is removed by the next.
    if situation == "benchmark" or (situation.endswith("agent") and end not in ("return", "exception")):
        sweep = "from llm_in_sandbox._scratch import Scratch\nwith Scratch(): pass"
        assert Script(sweep, TMPDIR=str(temporary)).finish(MOST)[0] == 0
    assert left_in(temporary) == [], what


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_what_is_there_is_seen(sandbox: Sandbox) -> None:
    assert not gone(sandbox.id, 0)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_left(number: int, tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    runs = {
        (situation, end): executor.submit(run_once, situation, end, number, tmp_path)
        for situation in SITUATIONS
        for end in ENDS
    }
    failures = [str(error) for one in runs.values() if (error := one.exception()) is not None]
    assert not failures, "\n".join(failures)
