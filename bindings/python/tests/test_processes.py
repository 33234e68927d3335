"""Interrupts, forks, exits and kills: nothing hangs, nothing is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Script, gone

from llm_in_sandbox import Sandbox

Start = Callable[[str], Script]


def test_keyboard_interrupt_ends_a_command(script: Start) -> None:
    run = script(
        """
        from llm_in_sandbox import Sandbox
        with Sandbox() as sandbox:
            print(sandbox.id, flush=True)
            try:
                sandbox.run("sleep 60")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print(sandbox.run("echo alive").stdout.strip(), flush=True)
        """
    )
    name = run.line()
    time.sleep(0.3)
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.line() == "interrupted"
    assert time.monotonic() - start < 20
    assert run.line() == "alive"
    assert run.finish()[0] == 0
    assert gone(name)


def test_a_signal_handler_may_use_sandboxes(script: Start) -> None:
    run = script(
        """
        import signal
        from llm_in_sandbox import Sandbox
        sandbox = Sandbox()
        def handler(*_):
            print(sandbox.run("echo handled").stdout.strip(), flush=True)
        signal.signal(signal.SIGUSR1, handler)
        print("ready", flush=True)
        print(sandbox.run("sleep 5; echo slept").stdout.strip(), flush=True)
        """
    )
    assert run.line() == "ready"
    time.sleep(0.3)
    run.process.send_signal(signal.SIGUSR1)
    assert run.line() == "handled"
    assert run.line() == "slept"
    assert run.finish()[0] == 0


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "1 / 0", "import os; os._exit(0)"])
def test_an_exit_leaves_nothing(script: Start, end: str) -> None:
    run = script(
        f"""
        from llm_in_sandbox import Sandbox, SandboxPool
        kept = [Sandbox() for _ in range(3)]
        kept[0].shell("sleep 1000 &")
        pool = SandboxPool(2)
        print(kept[0].id, flush=True)
        {end}
        """
    )
    name = run.line()
    start = time.monotonic()
    code, _, err = run.finish()
    assert time.monotonic() - start < 30
    assert code == (1 if "1 / 0" in end else 0), err
    assert "panicked" not in err and "Fatal" not in err, err
    assert gone(name)


def test_a_daemon_thread_at_exit_does_not_abort(script: Start) -> None:
    run = script(
        """
        import threading, time
        from llm_in_sandbox import Sandbox
        sandbox = Sandbox()
        print(sandbox.id, flush=True)
        def work():
            while True:
                try:
                    sandbox.run("sleep 0.01")
                except Exception:
                    pass
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        """
    )
    name = run.line()
    code, _, err = run.finish()
    assert code == 0 and "panicked" not in err and "Fatal" not in err, err
    assert gone(name)


def test_kill_leaves_nothing(script: Start) -> None:
    for _ in range(3):
        run = script(
            """
            from llm_in_sandbox import Sandbox
            sandboxes = [Sandbox() for _ in range(3)]
            print(sandboxes[0].id, flush=True)
            sandboxes[0].run("sleep 1000")
            """
        )
        name = run.line()
        run.process.kill()
        run.process.wait()
        assert gone(name)


def test_kill_leaves_nothing_though_a_forked_process_lives(script: Start) -> None:
    run = script(
        """
        import os, time
        from llm_in_sandbox import Sandbox
        sandbox = Sandbox()
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        print(sandbox.id, flush=True)
        time.sleep(20)
        """
    )
    name = run.line()
    run.process.kill()
    run.process.wait()
    assert gone(name)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_starts_its_own(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            from llm_in_sandbox import SandboxClosed

            try:
                sandbox.run("true")
                text = "the parent's sandbox was used"
            except SandboxClosed as error:
                text = "refused" if "forked" in str(error) else str(error)
            with Sandbox() as own:
                text += own.run("echo +own").stdout
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        assert file.read() == "refused+own\n"
    os.waitpid(child, 0)
    assert sandbox.run("echo still").stdout == "still\n"


def test_a_forked_process_cannot_use_its_parents_event_loop(script: Start) -> None:
    run = script(
        """
        import asyncio, os, signal
        import llm_in_sandbox as lis
        loop = asyncio.new_event_loop()
        sandbox = loop.run_until_complete(lis.AsyncSandbox.create())
        pool = loop.run_until_complete(lis.AsyncSandboxPool.create(1))
        loop.run_until_complete(sandbox.run("true"))
        async def own():
            async with await lis.AsyncSandbox.create() as made:
                return (await made.run("echo own")).stdout
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            assert sandbox.closed and pool.closed
            for use in (lambda: sandbox.run("true"), lambda: sandbox.shell("true"), pool.take):
                for runs in (loop.run_until_complete, asyncio.run):
                    async def used():
                        return await use()
                    try:
                        runs(used())
                    except lis.SandboxClosed as error:
                        assert "forked" in str(error), error
                    else:
                        os._exit(1)
            loop.run_until_complete(sandbox.close())
            os._exit(0 if asyncio.run(own()) == "own\\n" else 2)
        assert os.waitpid(child, 0)[1] == 0
        print(loop.run_until_complete(sandbox.run("echo parent")).stdout.strip())
        """
    )
    code, out, err = run.finish(60)
    assert code == 0 and out == "parent\n", err


def test_keyboard_interrupt_ends_the_wait_for_a_pool(script: Start) -> None:
    run = script(
        """
        import os, signal
        import llm_in_sandbox as lis
        pool = lis.SandboxPool(1)
        kept = [pool.take()]
        spawners = []
        for task in os.listdir("/proc/self/task"):
            try:
                spawners += map(int, open(f"/proc/self/task/{task}/children").read().split())
            except OSError:
                # A thread that has ended.
                pass
        for pid in spawners:
            os.kill(pid, signal.SIGSTOP)
        print(kept[0].id, flush=True)
        try:
            while True:
                kept.append(pool.take())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        for pid in spawners:
            os.kill(pid, signal.SIGCONT)
        print(pool.take().run("echo alive").stdout.strip(), flush=True)
        """
    )
    name = run.line()
    time.sleep(1)
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.line() == "interrupted" and time.monotonic() - start < 20
    assert run.line() == "alive"
    assert run.finish()[0] == 0
    assert gone(name)


def test_keyboard_interrupt_ends_an_episode_whose_server_is_silent(script: Start) -> None:
    run = script(
        """
        import socket, threading
        import llm_in_sandbox as lis
        server = socket.create_server(("127.0.0.1", 0))
        connections = []
        def accept():
            while True:
                connections.append(server.accept())
                print("asked", flush=True)
        threading.Thread(target=accept, daemon=True).start()
        agent = lis.Agent("m", base_url=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        with lis.Sandbox() as sandbox:
            print(sandbox.id, flush=True)
            try:
                agent.run("x", files={"a": b"b"}, sandbox=sandbox)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print(sandbox.run("echo alive").stdout.strip(), flush=True)
        """
    )
    name = run.line()
    assert run.line() == "asked"
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.line() == "interrupted" and time.monotonic() - start < 20
    assert run.line() == "alive"
    assert run.finish()[0] == 0
    assert gone(name)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(script: Start, method: str, tmp_path: object) -> None:
    path = f"{tmp_path}/program.py"
    with open(path, "w") as file:
        file.write(
            f"""
import multiprocessing, os, threading
from llm_in_sandbox import Sandbox

def work(number):
    with Sandbox() as sandbox:
        return sandbox.run(f"echo $(({{number}} * 2))").stdout.strip()

if __name__ == "__main__":
    kept = Sandbox()
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            kept.run("true")
    # Other threads use the parent's runtime while it forks.
    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("{method}")
    with context.Pool(2) as pool:
        print(",".join(pool.map(work, range(6))))
    stop.set()
    for thread in threads:
        thread.join()
    print(kept.run("echo parent").stdout.strip())
"""
        )
    run = script(f"import runpy; runpy.run_path({path!r}, run_name='__main__')" if method == "fork" else f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {path!r}]))")
    code, out, err = run.finish(60)
    assert code == 0, err
    assert out.split() == ["0,2,4,6,8,10", "parent"]


def test_a_killed_spawner_is_replaced(script: Start) -> None:
    run = script(
        """
        import os, time
        from llm_in_sandbox import InfrastructureError, Sandbox
        sandbox = Sandbox()
        tasks = os.listdir("/proc/self/task")
        children = [pid for task in tasks for pid in open(f"/proc/self/task/{task}/children").read().split()]
        os.kill(int(children[0]), 9)
        for _ in range(200):
            try:
                sandbox.run("true")
                time.sleep(0.02)
            except InfrastructureError as error:
                print(type(error).__name__)
                break
        sandbox.close()
        with Sandbox() as other:
            print(other.run("echo again").stdout.strip())
        """
    )
    code, out, err = run.finish()
    assert code == 0, err
    assert out.split() == ["SandboxGone", "again"]


def test_an_exit_does_not_wait_for_a_runtime_that_starts(script: Start, tmp_path: Path) -> None:
    program = tmp_path / "llm-in-sandbox"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    run = script(
        f"""
        import os, threading, time
        os.environ["LLM_IN_SANDBOX_PROGRAM"] = {str(program)!r}
        import llm_in_sandbox as lis
        threading.Thread(target=lis.Sandbox, daemon=True).start()
        def has_child(task):
            try:
                return open(f"/proc/self/task/{{task}}/children").read()
            except OSError:
                return False
        while not any(has_child(task) for task in os.listdir("/proc/self/task")):
            time.sleep(0.01)
        print("starting", flush=True)
        """
    )
    assert run.line() == "starting"
    start = time.monotonic()
    code, _, err = run.finish(120)
    assert code == 0 and "panicked" not in err and "Fatal" not in err, err
    assert time.monotonic() - start < 15


def test_what_a_forked_process_drops_stays_its_parents(script: Start) -> None:
    run = script(
        """
        import gc, os, signal, threading, time
        from llm_in_sandbox import Sandbox, SandboxPool, _engine
        from llm_in_sandbox._session import Session
        kept, pool = Sandbox(), SandboxPool(2)
        session = Session("x", within=kept)
        operation = kept._handle.run(["true"], None, [], None, None, 100)
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                kept.run("true")
        threads = [threading.Thread(target=busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            child = os.fork()
            if child == 0:
                # A lock that a thread of the parent held would never be free here.
                signal.alarm(20)
                assert kept.closed and pool.closed
                session._episode.cancel()
                session._episode.reply(1, "{}", None)
                del kept, pool, session, operation
                gc.collect()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        operation.wait()
        with pool.take() as taken:
            print(kept.run("echo parent").stdout.strip(), taken.run("echo pool").stdout.strip())
        session.step({"tool_calls": [{"function": {"name": "execute_bash", "arguments": {"command": "echo episode"}}}]})
        print("episode" in session.messages[-1]["content"])
        """
    )
    code, out, err = run.finish(120)
    assert code == 0, err
    assert out.split() == ["parent", "pool", "True"]


def test_the_program_is_missing(script: Start) -> None:
    run = script(
        """
        import os
        os.environ["LLM_IN_SANDBOX_PROGRAM"] = "/nowhere/llm-in-sandbox"
        from llm_in_sandbox import Sandbox, SandboxUnavailable
        try:
            Sandbox()
        except SandboxUnavailable as error:
            print(error)
        """
    )
    code, out, err = run.finish()
    assert code == 0, err
    assert "/nowhere/llm-in-sandbox is not a program" in out
