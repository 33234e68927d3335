"""Benchmarks whose model is a Python function."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Script

from llm_in_sandbox import InfrastructureError, UsageError, benchmark

Start = Callable[[str], Script]
ROWS = [{"id": str(n), "problem_statement": f"What is {n} plus 1?", "ground_truth": str(n + 1)} for n in range(24)]


def test_many_attempts_at_once() -> None:
    together = threading.Barrier(24)

    def model(messages: list[Any], tools: list[Any]) -> str:
        # Until all wait for their response.
        together.wait(60)
        return f"\\boxed{{{int(messages[-1]['content'].split('What is ')[1].split()[0]) + 1}}}"

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
