"""`AsyncSandbox`: the same for asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from . import _arguments
from ._arguments import MAX_OUTPUT, MAX_READ, Path, SandboxOptions
from ._command import CommandResult, CopyReport, Entry, command_result
from ._engine import engine
from ._event_loop import finished
from ._handles import SandboxProperties

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AsyncSandbox"]

#: `list` is a method of the class.
_List = list


class AsyncSandbox(SandboxProperties):
    """A `Sandbox` whose methods are coroutines. Created by `create`, or in an `async with`.

    Cancelling a task cancels its operation: a command is killed, a copy leaves nothing behind.

    >>> import asyncio
    >>> from llm_in_sandbox import AsyncSandbox
    >>> async def main():
    ...     async with await AsyncSandbox.create() as sandbox:
    ...         results = await asyncio.gather(*(sandbox.run(f"echo {i}") for i in range(3)))
    ...         return [result.stdout.strip() for result in results]
    >>> asyncio.run(main())
    ['0', '1', '2']
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("use `await AsyncSandbox.create(...)`")

    @classmethod
    async def create(cls, image: Path = "host", **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        """Creates a sandbox; the arguments are those of `Sandbox`."""
        return cls._of(await finished(engine().create(_arguments.spec(image, options))))

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Runs a program and waits for its end, as `Sandbox.run` does."""
        raw = await finished(self._running(argv, cwd, env, stdin, timeout, max_output))
        result = command_result(raw, _arguments.title(argv))
        return result.check() if check else result

    async def shell(
        self,
        command: str,
        *,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Evaluates a command in a `bash` that stays alive, as `Sandbox.shell` does."""
        raw = await finished(self._handle.shell(command, timeout, max_output))
        result = command_result(raw, command)
        return result.check() if check else result

    async def read(self, path: Path, *, max_bytes: int = MAX_READ) -> bytes:
        """Reads a file."""
        content: bytes = await finished(self._handle.read(path, max_bytes))
        return content

    async def read_text(self, path: Path, *, max_bytes: int = MAX_READ) -> str:
        """Reads a file as UTF-8; other bytes become U+FFFD."""
        return (await self.read(path, max_bytes=max_bytes)).decode("utf-8", "replace")

    async def write(self, path: Path, data: bytes | str, mode: int | None = None) -> None:
        """Writes a file as a whole, creating missing directories."""
        await finished(self._handle.write(path, _arguments.data(data), mode))

    async def mkdir(self, path: Path) -> None:
        """Creates a directory and those above it; it may exist."""
        await finished(self._handle.mkdir(path))

    async def list(self, path: Path = ".") -> _List[Entry]:
        """Lists a directory, sorted by name."""
        return [Entry(*entry) for entry in await finished(self._handle.list(path))]

    async def upload(self, host_path: Path, path: Path) -> CopyReport:
        """Copies a file or directory of this machine to exactly this path in the sandbox."""
        return CopyReport(*await finished(self._handle.upload(host_path, path)))

    async def download(self, path: Path, host_path: Path) -> CopyReport:
        """Copies a file or directory of the sandbox to exactly this path on this machine."""
        return CopyReport(*await finished(self._handle.download(path, host_path)))

    async def fork(self) -> AsyncSandbox:
        """Creates a second sandbox with the same limits and files, without processes and shell state."""
        return type(self)._of(await finished(self._handle.fork()))

    async def snapshot(self, name: str) -> None:
        """Saves the files as an image of this name, from which sandboxes can be created."""
        await finished(self._handle.snapshot(name))

    async def expose(self, port: int) -> str:
        """Makes a port inside reachable at a port of this machine's loopback address; returns the URL."""
        url: str = await finished(self._handle.expose(port))
        return url

    async def close(self) -> None:
        """Kills everything in the sandbox and removes it; returns when it is gone. Closing it again does nothing."""
        await finished(self._handle.close())

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
