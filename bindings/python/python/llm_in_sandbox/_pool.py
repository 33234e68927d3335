"""`SandboxPool`: sandboxes that are ready before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _arguments, _native
from ._arguments import Path, SandboxOptions
from ._async_sandbox import AsyncSandbox
from ._engine import engine
from ._event_loop import finished
from ._handles import Closing
from ._sandbox import Sandbox
from .errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["SandboxPool"]


class SandboxPool(Closing):
    """Keeps sandboxes of one kind ready, so that taking one does not wait for its creation.

    Each is handed out once. The arguments besides `size` are those of `Sandbox`.

    >>> from llm_in_sandbox import SandboxPool
    >>> with SandboxPool(4, memory="256M") as pool:
    ...     with pool.take() as sandbox:
    ...         sandbox.run("echo warm").stdout
    'warm\\n'
    """

    def __init__(self, size: int, image: Path = "host", **options: Unpack[SandboxOptions]) -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"argument `size`: expected int, not {type(size).__name__}")
        if size < 1:
            raise UsageError(f"argument `size`: a pool has at least one sandbox, not {size}")
        self.size = size
        spec = _arguments.spec(image, options)
        self._handle: _native.PoolHandle = engine().pool(spec, size).wait()

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to the process that this one was forked from."""
        return self._handle.closed

    def take(self) -> Sandbox:
        """Takes a sandbox, which is the caller's from then on; waits if none is ready."""
        return Sandbox._of(self._handle.take().wait())

    async def take_async(self) -> AsyncSandbox:
        """The same for asyncio."""
        return AsyncSandbox._of(await finished(self._handle.take()))

    def close(self) -> None:
        """Destroys the sandboxes that were not taken. Those that were stay open. Closing it again does nothing."""
        self._handle.close().wait()
