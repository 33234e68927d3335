"""Waits in an event loop: for operations of the extension, and for functions in threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from . import _native

__all__ = ["finished", "in_daemon_thread"]

_Result = TypeVar("_Result")


class _Bridge:
    """Results of operations for one event loop, which reads them itself: no other thread runs Python code."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._completions = _native.Completions()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        loop.add_reader(self._completions.fileno(), self._drain)

    def _drain(self) -> None:
        for number, value, error in self._completions.drain():
            future = self._waiting.pop(number, None)
            # Without a future, or with one that is done, the operation was cancelled. A sandbox it created is dropped.
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    async def finished(self, loop: asyncio.AbstractEventLoop, operation: _native.Operation) -> Any:
        if self._process != os.getpid():
            # In a forked process the loop is its parent's: what is to be closed there is left alone, other work is refused.
            return operation.wait()
        number = operation.start(self._completions)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            self._completions.cancel(number)
            raise


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()


async def finished(operation: _native.Operation) -> Any:
    """Starts an operation and waits for its result; cancelling the task cancels the operation."""
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    return await bridge.finished(loop, operation)


def in_daemon_thread(function: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Calls a function in a thread of its own, with the caller's context variables; returns a future of this event loop.

    Neither the end of the loop nor the exit of the interpreter waits for it, as they do for `asyncio.to_thread`. A
    `StopIteration`, which no future can hold, becomes a `RuntimeError`.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            value = context.run(function)
        except StopIteration as error:
            made = RuntimeError("the function raised StopIteration")
            made.__cause__ = error
            settle(fail, made)
        except BaseException as error:
            settle(fail, error)
        else:
            settle(succeed, value)

    def settle(how: Callable[[Any], None], outcome: object) -> None:
        # Nobody waits in a loop that is closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(how, outcome)

    def succeed(value: _Result) -> None:
        if not future.done():
            future.set_result(value)

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future
