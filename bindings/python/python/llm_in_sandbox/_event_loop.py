"""Waits for operations of the extension in an event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from weakref import WeakKeyDictionary

from . import _native

__all__ = ["finished"]


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
