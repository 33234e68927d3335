"""`SandboxPool` and `AsyncSandboxPool`: sandboxes that are ready before they are needed."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from . import _arguments, _native
from ._arguments import Path, SandboxOptions
from ._async_sandbox import AsyncSandbox
from ._engine import engine
from ._event_loop import finished
from ._handles import Closing, Unpicklable
from ._sandbox import Sandbox
from .errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncSandboxPool", "SandboxPool"]


class _Pool(Unpicklable):
    """A pool, and what is known of it without waiting."""

    size: int
    _handle: _native.PoolHandle

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to the process that this one was forked from."""
        return self._handle.closed


def _starting(size: int, image: Path, options: SandboxOptions) -> _native.Operation:
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"argument `size`: expected int, not {type(size).__name__}")
    if size < 1:
        raise UsageError(f"argument `size`: a pool has at least one sandbox, not {size}")
    return engine().pool(_arguments.spec(image, options), size)


class SandboxPool(Closing, _Pool):
    """Keeps sandboxes of one kind ready, so that taking one does not wait for its creation.

    Each is handed out once. The arguments besides `size` are those of `Sandbox`. What cannot be created is tried again at
    the next `take`, which raises if that fails as well.

    >>> from llm_in_sandbox import SandboxPool
    >>> with SandboxPool(4, memory="256M") as pool:
    ...     with pool.take() as sandbox:
    ...         sandbox.run("echo warm").stdout
    'warm\\n'
    """

    def __init__(self, size: int, image: Path = "host", **options: Unpack[SandboxOptions]) -> None:
        self._handle = _starting(size, image, options).wait()
        self.size = size

    def take(self) -> Sandbox:
        """Takes a sandbox, which is the caller's from then on; waits if none is ready."""
        return Sandbox._of(self._handle.take().wait())

    async def take_async(self) -> AsyncSandbox:
        """The same for asyncio."""
        return AsyncSandbox._of(await finished(self._handle.take()))

    def close(self) -> None:
        """Destroys the sandboxes that were not taken. Those that were stay open. Closing it again does nothing."""
        self._handle.close().wait()


class AsyncSandboxPool(_Pool):
    """A `SandboxPool` whose methods are coroutines. Created by `create`.

    >>> import asyncio
    >>> from llm_in_sandbox import AsyncSandboxPool
    >>> async def main():
    ...     async with await AsyncSandboxPool.create(4, memory="256M") as pool:
    ...         async with await pool.take() as sandbox:
    ...             return (await sandbox.run("echo warm")).stdout
    >>> asyncio.run(main())
    'warm\\n'
    """

    def __init__(self) -> None:
        raise TypeError("use `await AsyncSandboxPool.create(...)`")

    @classmethod
    async def create(
        cls, size: int, image: Path = "host", **options: Unpack[SandboxOptions]
    ) -> AsyncSandboxPool:
        """Starts to fill a pool; the arguments are those of `SandboxPool`."""
        made = object.__new__(cls)
        made._handle = await finished(_starting(size, image, options))
        made.size = size
        return made

    async def take(self) -> AsyncSandbox:
        """Takes a sandbox, which is the caller's from then on; waits if none is ready."""
        return AsyncSandbox._of(await finished(self._handle.take()))

    async def close(self) -> None:
        """Destroys the sandboxes that were not taken. Those that were stay open. Closing it again does nothing."""
        await finished(self._handle.close())

    async def __aenter__(self) -> AsyncSandboxPool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
