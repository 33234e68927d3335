"""Use after close, exceptions in callbacks and tools, unpicklable objects, wrong types, threads at exit: exceptions, no abort."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import Script

import llm_in_sandbox as lis
from llm_in_sandbox import Agent, AsyncSandbox, Sandbox, SandboxPool

Start = Callable[[str], Script]


def reply(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}


def looks_then_submits(messages: list[Any], tools: list[Any]) -> Any:
    return reply("look") if messages[-1]["role"] == "user" else reply("submit")


def test_every_method_after_close() -> None:
    sandbox = Sandbox()
    sandbox.close()
    uses: list[Callable[[], object]] = [
        lambda: sandbox.run("true"),
        lambda: sandbox.shell("true"),
        lambda: sandbox.read("x"),
        lambda: sandbox.read_text("x"),
        lambda: sandbox.write("x", ""),
        lambda: sandbox.mkdir("x"),
        lambda: sandbox.list(),
        lambda: sandbox.upload(__file__, "x"),
        lambda: sandbox.download("x", "/nowhere"),
        lambda: sandbox.fork(),
        lambda: sandbox.snapshot("x"),
        lambda: sandbox.expose(80),
        lambda: sandbox.__enter__().run("true"),
    ]
    for use in uses:
        with pytest.raises(lis.SandboxClosed, match=sandbox.id):
            use()
    sandbox.close()
    assert sandbox.closed and sandbox.id and sandbox.protection


def test_closing_from_many_threads() -> None:
    sandbox = Sandbox()
    threads = [threading.Thread(target=sandbox.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sandbox.closed and not any(thread.is_alive() for thread in threads)


def test_an_operation_is_started_once() -> None:
    with Sandbox() as sandbox:
        operation = sandbox._handle.run(["true"], None, [], None, None, 100)
        operation.wait()
        with pytest.raises(RuntimeError, match="started before"):
            operation.wait()


def test_names_of_snapshots(shared: Sandbox) -> None:
    for name, reason in (("not a name", "contains ' '"), ("", "1 to 200"), ("../x", "looks like a path"), ("host", "built-in")):
        with pytest.raises(lis.UsageError, match=reason):
            shared.snapshot(name)
    with pytest.raises(TypeError):
        shared.snapshot(3)  # type: ignore[arg-type]
    assert shared.run("true").ok


def test_an_exception_in_a_listener_ends_the_run(sandbox: Sandbox) -> None:
    def listener(event: dict[str, Any]) -> None:
        if event["kind"] == "replied":
            raise ZeroDivisionError("in a listener")

    with pytest.raises(ZeroDivisionError, match="in a listener"):
        Agent(looks_then_submits).run("x", sandbox=sandbox, on_event=listener)
    assert sandbox.run("true").ok
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Agent(looks_then_submits).arun("x", on_event=listener))


def test_an_exception_in_a_listener_of_texts_ends_the_run(sandbox: Sandbox) -> None:
    def listener(delta: dict[str, Any]) -> None:
        raise ZeroDivisionError("in a listener")

    with streaming("Hello.") as url:
        heard: list[dict[str, Any]] = []
        agent = Agent("m", base_url=url, max_turns=1)
        agent.run("x", sandbox=sandbox, on_delta=heard.append)
        assert "Hello." in "".join(delta.get("text", "") for delta in heard)
        with pytest.raises(ZeroDivisionError, match="in a listener"):
            agent.run("x", sandbox=sandbox, on_delta=listener)
        with pytest.raises(ZeroDivisionError):
            asyncio.run(agent.arun("x", on_delta=listener))
    assert sandbox.run("true").ok


@contextmanager
def streaming(text: str) -> Iterator[str]:
    """A server of OpenAI's chat completions that streams this text; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for content in text:
                choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
                self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            self.wfile.write(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_tool_that_interrupts_ends_the_run(sandbox: Sandbox, error: type[BaseException]) -> None:
    def look() -> str:
        """Looks."""
        raise error

    with pytest.raises(error):
        Agent(looks_then_submits, tools=[look]).run("x", sandbox=sandbox)
    assert sandbox.run("true").ok


def test_what_tools_raise_and_return_becomes_an_observation() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    class OddError(Exception):
        def __str__(self) -> str:
            raise ValueError("no str")

    def recursive() -> str:
        return recursive()

    results: list[Callable[[], object]] = [
        lambda: Odd(),
        lambda: {1: object()},
        lambda: b"\xff\x00",
        lambda: float("nan"),
        lambda: "\ud800",
        recursive,
    ]

    def raises() -> object:
        raise OddError

    for result in [*results, raises]:

        def look() -> Any:
            """Looks."""
            return result()

        trajectory = Agent(looks_then_submits, tools=[look]).run("x")
        assert trajectory.submitted and isinstance(trajectory.steps[0]["observation"], str)


def test_a_tool_that_closes_the_sandbox() -> None:
    def look(sandbox: Sandbox) -> str:
        """Looks."""
        sandbox.close()
        return "closed"

    with pytest.raises(lis.SandboxError):
        Agent(looks_then_submits, tools=[look]).run("x")


def test_what_cannot_be_pickled(shared: Sandbox) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create() as sandbox:
            with pytest.raises(TypeError, match="belongs to this process"):
                pickle.dumps(sandbox)

    asyncio.run(main())
    with SandboxPool(1) as pool:
        for value in (shared, pool, Agent(looks_then_submits)):
            with pytest.raises(TypeError, match="belongs to this process"):
                pickle.dumps(value)
    for handle in (shared._handle, shared._handle.close):
        with pytest.raises(TypeError):
            pickle.dumps(handle)


def test_wrong_types_for_asyncio() -> None:
    async def main() -> None:
        for wrong in ({"memory": []}, {"cpus": "x"}, {"env": 3}, {"network": 3}, {"colour": "red"}):
            with pytest.raises(TypeError):
                await AsyncSandbox.create(**wrong)  # type: ignore[misc]
        async with await AsyncSandbox.create() as sandbox:
            with pytest.raises(TypeError):
                await sandbox.run(3)  # type: ignore[arg-type]
            with pytest.raises(lis.UsageError):
                await sandbox.run("x", timeout=-1)

    asyncio.run(main())
    with pytest.raises(TypeError, match="colour"):
        SandboxPool(1, colour="red")  # type: ignore[call-arg]


def test_wrong_types_for_agents() -> None:
    for name in ("headers", "extra_body", "sandbox"):
        for wrong in (3, "x", ["x"]):
            with pytest.raises(TypeError, match=f"`{name}`: expected a mapping, not {type(wrong).__name__}"):
                Agent("m", base_url="http://127.0.0.1:9/v1", **{name: wrong})  # type: ignore[arg-type]
    for files in (3, [b"x"], b"x"):
        with pytest.raises(TypeError, match="`files`"):
            Agent(looks_then_submits).run("x", files=files)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="`files`"):
            asyncio.run(Agent(looks_then_submits).arun("x", files=files))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes or str"):
        Agent(looks_then_submits).run("x", files={"a": 3})  # type: ignore[call-overload]


def test_numbers_out_of_range(shared: Sandbox) -> None:
    for wrong in (
        lambda: shared.run("true", max_output=-1),
        lambda: shared.read("x", max_bytes=-1),
        lambda: shared.expose(70_000),
        lambda: shared.write("x", "", mode=-1),
    ):
        with pytest.raises((OverflowError, lis.UsageError)):
            wrong()
    assert shared.run("true").ok


def test_texts_that_are_not_unicode(shared: Sandbox) -> None:
    for wrong in (lambda: shared.run("echo \ud800"), lambda: shared.shell("echo \ud800"), lambda: shared.write("x", "\ud800")):
        with pytest.raises(UnicodeError):
            wrong()


def test_a_daemon_thread_inside_an_episode_at_exit(script: Start) -> None:
    run = script(
        """
        import threading, time
        import llm_in_sandbox as lis
        started = threading.Event()
        def model(messages, tools):
            started.set()
            time.sleep(1000)
        threading.Thread(target=lambda: lis.Agent(model).run("x"), daemon=True).start()
        started.wait()
        """
    )
    code, _, err = run.finish()
    assert code == 0 and "panicked" not in err and "Fatal" not in err, err


def test_a_call_after_the_exit_of_the_package(script: Start) -> None:
    run = script(
        """
        import atexit
        # Registered before the package, so called after its end.
        @atexit.register
        def late():
            for use in (lambda: sandbox.run("true"), lis.Sandbox, lambda: lis.SandboxPool(1)):
                try:
                    use()
                except lis.SandboxClosed as error:
                    print("refused:", error, flush=True)
            sandbox.close()
        import llm_in_sandbox as lis
        sandbox = lis.Sandbox()
        """
    )
    code, out, err = run.finish()
    assert code == 0 and "panicked" not in err and "Fatal" not in err, err
    assert out.count("refused:") == 3 and "exiting" in out, (out, err)


def test_stop_iteration_does_not_hang() -> None:
    def empty(messages: list[Any], tools: list[Any]) -> Any:
        return next(iter(()))

    def look() -> Any:
        """Looks."""
        return next(iter(()))

    with pytest.raises(lis.ModelError, match="StopIteration"):
        asyncio.run(asyncio.wait_for(Agent(empty).arun("x"), 30))
    with pytest.raises(lis.ModelError, match="StopIteration"):
        Agent(empty).run("x")
    trajectory = asyncio.run(asyncio.wait_for(Agent(looks_then_submits, tools=[look]).arun("x"), 30))
    assert "StopIteration" in trajectory.steps[0]["observation"]


def test_temporary_results_last_until_the_exit(script: Start) -> None:
    run = script(
        """
        import os
        from llm_in_sandbox._scratch import until_exit
        path = until_exit()
        child = os.fork()
        if child == 0:
            raise SystemExit(0)
        os.waitpid(child, 0)
        print(path, os.path.isdir(path), flush=True)
        """
    )
    code, out, err = run.finish()
    path, there = out.split()
    assert code == 0 and there == "True" and not os.path.exists(path), err
