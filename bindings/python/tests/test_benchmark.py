"""Benchmarks whose model is a Python function."""

from __future__ import annotations

import asyncio
import inspect
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Script, children, ended

from llm_in_sandbox import InfrastructureError, UsageError, abenchmark, benchmark
from llm_in_sandbox._function_server import FunctionServer

Start = Callable[[str], Script]
ROWS = [{"id": str(n), "problem_statement": f"What is {n} plus 1?", "ground_truth": str(n + 1)} for n in range(24)]


def right(messages: list[Any]) -> str:
    """The right answer."""
    return f"\\boxed{{{int(messages[-1]['content'].split('What is ')[1].split()[0]) + 1}}}"


def programs() -> list[int]:
    """The programs of benchmarks that this process runs."""
    found = []
    for child in children("self"):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"benchmark" in words:
            found.append(child)
    return found


def test_many_attempts_at_once() -> None:
    together = threading.Barrier(24)

    def model(messages: list[Any], tools: list[Any]) -> str:
        # Until all wait for their response.
        together.wait(60)
        return right(messages)

    results = benchmark("math", model, data=ROWS, mode="llm", concurrency=24)
    assert results.score == 1.0 and len(results.attempts) == 24


def test_failures_of_a_model_are_not_scores() -> None:
    def model(messages: list[Any], tools: list[Any]) -> str:
        raise RuntimeError("no more tokens")

    with pytest.raises(InfrastructureError, match="1 failed") as caught:
        benchmark("math", model, data=ROWS[:1], mode="llm")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(UsageError, match="no-such-task"):
        benchmark("no-such-task", model)


def test_the_server_of_a_function_takes_many_connections_before_it_accepts_one(script: Start) -> None:
    run = script(
        """
        import time
        from llm_in_sandbox._function_server import FunctionServer
        print(FunctionServer(lambda messages, tools: "", "x").base_url, flush=True)
        time.sleep(60)
        """
    )
    address = urlsplit(run.line())
    run.process.send_signal(signal.SIGSTOP)
    connections = [socket.socket() for _ in range(64)]
    waiting = set(connections)
    for connection in connections:
        connection.setblocking(False)
        connection.connect_ex((address.hostname, address.port))
    deadline = time.monotonic() + 10
    while waiting and time.monotonic() < deadline:
        waiting -= set(select.select([], list(waiting), [], 0.1)[1])
    for connection in connections:
        connection.close()
    run.process.send_signal(signal.SIGCONT)
    assert not waiting


def test_asyncio_has_the_same_arguments() -> None:
    assert list(inspect.signature(abenchmark).parameters.values()) == list(inspect.signature(benchmark).parameters.values())


def test_a_coroutine_function_is_awaited_in_the_callers_loop() -> None:
    seen: ContextVar[str] = ContextVar("seen")

    async def main() -> float | None:
        loop = asyncio.get_running_loop()
        seen.set("yes")

        async def model(messages: list[Any], tools: list[Any]) -> str:
            assert asyncio.get_running_loop() is loop and seen.get() == "yes"
            await asyncio.sleep(0.01)
            return right(messages)

        results = await abenchmark("math", model, data=ROWS[:8], mode="llm", concurrency=8)
        assert len(results.attempts) == 8 and asyncio.all_tasks() == {asyncio.current_task()}
        return results.score

    assert asyncio.run(main()) == 1.0


def test_other_functions_are_called_in_threads() -> None:
    seen: ContextVar[str] = ContextVar("seen")

    async def main() -> float | None:
        together = threading.Barrier(8)
        seen.set("yes")

        def model(messages: list[Any], tools: list[Any]) -> str:
            assert threading.current_thread() is not threading.main_thread() and seen.get() == "yes"
            together.wait(60)
            return right(messages)

        return (await abenchmark("math", model, data=ROWS[:8], mode="llm", concurrency=8)).score

    assert asyncio.run(main()) == 1.0


class Waiting:
    """A model that counts its requests, and answers none of them."""

    def __init__(self, requests: int) -> None:
        self.started = self.cancelled = 0
        self.all = asyncio.Event()
        self.requests = requests

    async def __call__(self, messages: list[Any], tools: list[Any]) -> str:
        self.started += 1
        if self.started == self.requests:
            self.all.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ""


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_benchmark_ends_with_all_that_it_awaits(times: int, tmp_path: Path) -> None:
    async def main() -> None:
        model = Waiting(4)
        run = abenchmark("math", model, data=ROWS, mode="llm", concurrency=4, output=tmp_path)
        task = asyncio.create_task(run)
        await asyncio.wait_for(model.all.wait(), 60)
        assert len(programs()) == 1
        start = time.monotonic()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 30
        assert (model.started, model.cancelled) == (4, 4)
        assert programs() == [] and asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_benchmark_that_fails_leaves_no_coroutine() -> None:
    async def main() -> None:
        model = Waiting(2)
        task = asyncio.create_task(abenchmark("math", model, data=ROWS, mode="llm", concurrency=2))
        await asyncio.wait_for(model.all.wait(), 60)
        (program,) = programs()
        os.kill(program, signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="ended with -9"):
            await asyncio.wait_for(task, 30)
        assert (model.started, model.cancelled) == (2, 2)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_a_coroutine_raises_is_the_cause() -> None:
    async def model(messages: list[Any], tools: list[Any]) -> str:
        raise RuntimeError("no more tokens")

    with pytest.raises(InfrastructureError, match="1 failed") as caught:
        asyncio.run(abenchmark("math", model, data=ROWS[:1], mode="llm"))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_a_model_is_the_callers(error: type[BaseException]) -> None:
    def model(messages: list[Any], tools: list[Any]) -> str:
        raise error

    with pytest.raises(error):
        benchmark("math", model, data=ROWS[:1], mode="llm")
    assert programs() == []


def test_keyboard_interrupt_ends_a_benchmark(script: Start) -> None:
    run = script(
        """
        import time
        import llm_in_sandbox as lis
        def model(messages, tools):
            print("asked", flush=True)
            time.sleep(1000)
        rows = [{"id": "a", "problem_statement": "x", "ground_truth": "42"}]
        try:
            lis.benchmark("math", model, data=rows, mode="llm")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    assert run.line() == "asked"
    started = children(run.process.pid)
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.line() == "interrupted"
    assert run.finish()[0] == 0 and time.monotonic() - start < 30
    assert started and all(ended(pid) for pid in started)


def test_requests_that_are_none() -> None:
    with FunctionServer(lambda messages, tools: "yes", "x") as server:
        address = urlsplit(server.base_url)

        def status(body: bytes, **headers: str) -> int:
            connection = HTTPConnection(str(address.hostname), address.port, timeout=20)
            given = {"Authorization": f"Bearer {server.api_key}", **headers}
            connection.request("POST", "/v1/chat/completions", body, given)
            answered = connection.getresponse().status
            connection.close()
            return answered

        for wrong in (b"", b"{", b"[]", b"{}", b"null", b'"x"', b"\xff"):
            assert status(wrong) == 400, wrong
        right = b'{"messages": []}'
        assert status(right, **{"Content-Length": "x"}) == 400
        assert status(right, **{"Content-Length": str(1 << 40)}) == 413
        assert status(right, Authorization="Bearer x") == 401
        assert status(right) == 200 and server.error is None
