"""`Sandbox`: an isolated Linux system, for threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from . import _arguments, _native
from ._arguments import MAX_OUTPUT, MAX_READ, Network, Path, Size
from ._command import CommandResult, CopyReport, Entry, command_result
from ._engine import engine
from ._handles import Closing, SandboxProperties

__all__ = ["Sandbox"]

#: `list` is a method of the class.
_List = list


class Sandbox(Closing, SandboxProperties):
    """An isolated Linux system with its own files, processes and network, and limits on all of them.

    It is a context manager, and ends when it is closed, garbage collected, or when this process ends for whatever
    reason. All methods can be called from several threads at once, and block without holding the interpreter's lock.

    Args:
        image: `"host"` for the programs of this machine (read-only, without its secrets), the name of an image in the
            store (`llm-in-sandbox image pull`), or a directory with a root file system.
        env: environment variables, added to a minimal environment. Nothing of this process's environment is inherited.
        workdir: working directory of commands, created if missing; `/testbed` by default. Relative paths start here.
        memory: most memory of all processes together, as bytes or text such as `"512M"`; 1 GiB by default.
        cpus: most processor time, in cores; 1 by default.
        disk: most bytes of files; 2 GiB by default.
        processes: most processes and threads; 512 by default. `"unlimited"` lifts any of the four limits.
        network: `"none"`, `"internet"` (every public address, nothing private), `"full"` (this machine's network), or a
            list of hosts such as `["example.com", "*.example.org", "localhost:8000"]`.
        runtime: `"native"`, or `"docker"` with a daemon at `docker_host` (by default `$DOCKER_HOST` or the local one).
        stall_timeout: seconds without progress after which a request fails with `StalledError`; 30 by default.

    Raises:
        UsageError: an argument cannot work.
        ImageNotFound: there is no such image.
        SandboxUnavailable: this machine cannot create sandboxes, or not of this kind.

    >>> from llm_in_sandbox import Sandbox
    >>> with Sandbox(memory="256M") as sandbox:
    ...     sandbox.write("data.txt", "3\\n4\\n")
    ...     sandbox.run(["sort", "-r", "data.txt"]).stdout
    '4\\n3\\n'
    """

    __slots__ = ()

    def __init__(
        self,
        image: Path = "host",
        *,
        env: Mapping[str, str] | None = None,
        workdir: Path | None = None,
        memory: Size | None = None,
        cpus: float | None = None,
        disk: Size | None = None,
        processes: int | None = None,
        network: Network = "none",
        runtime: Literal["native", "docker"] = "native",
        docker_host: str | None = None,
        stall_timeout: float | None = None,
    ) -> None:
        options: _arguments.SandboxOptions = {
            "env": env,
            "workdir": workdir,
            "memory": memory,
            "cpus": cpus,
            "disk": disk,
            "processes": processes,
            "network": network,
            "runtime": runtime,
            "docker_host": docker_host,
            "stall_timeout": stall_timeout,
        }
        created: _native.SandboxHandle = engine().create(_arguments.spec(image, options)).wait()
        self._handle = created

    def run(
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
        """Runs a program and waits for its end. A text is a script for `bash`.

        Each call is independent of others; `shell` keeps directory and variables.

        Args:
            cwd: working directory.
            env: variables, added to those of the sandbox.
            stdin: input; empty by default.
            timeout: seconds after which everything it started is killed.
            check: whether to raise `CommandError` if it does not exit with 0.
            max_output: most bytes of each stream that are kept, half from its start and half from its end.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.run(["tr", "a-z", "A-Z"], stdin="hello").stdout
        ...     sandbox.run("sleep 60", timeout=0.1).timed_out
        'HELLO'
        True
        """
        raw = self._running(argv, cwd, env, stdin, timeout, max_output).wait()
        result = command_result(raw, _arguments.title(argv))
        return result.check() if check else result

    def shell(
        self,
        command: str,
        *,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Evaluates a command in a `bash` that stays alive: directory, variables and functions persist.

        After a timeout they are those from before the command. Calls from several threads run one after the other.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     _ = sandbox.shell("cd /tmp && x=42")
        ...     sandbox.shell("echo $x in $PWD").stdout
        '42 in /tmp\\n'
        """
        raw = self._handle.shell(command, timeout, max_output).wait()
        result = command_result(raw, command)
        return result.check() if check else result

    def read(self, path: Path, *, max_bytes: int = MAX_READ) -> bytes:
        """Reads a file.

        Raises:
            PathNotFound: there is none.
            PathError: it is not a regular file, or has more than `max_bytes` bytes; `download` copies any size.
        """
        content: bytes = self._handle.read(path, max_bytes).wait()
        return content

    def read_text(self, path: Path, *, max_bytes: int = MAX_READ) -> str:
        """Reads a file as UTF-8; other bytes become U+FFFD.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.write("/tmp/x/y.txt", "text")
        ...     sandbox.read_text("/tmp/x/y.txt")
        'text'
        """
        return self.read(path, max_bytes=max_bytes).decode("utf-8", "replace")

    def write(self, path: Path, data: bytes | str, mode: int | None = None) -> None:
        """Writes a file as a whole, creating missing directories.

        An existing file keeps its permissions; a new one has 0644. `mode` sets others.
        """
        self._handle.write(path, _arguments.data(data), mode).wait()

    def mkdir(self, path: Path) -> None:
        """Creates a directory and those above it; it may exist."""
        self._handle.mkdir(path).wait()

    def list(self, path: Path = ".") -> _List[Entry]:
        """Lists a directory, sorted by name.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.write("a.txt", "abc")
        ...     sandbox.list()
        [Entry(name='a.txt', kind='file', size=3, mode=420)]
        """
        return [Entry(*entry) for entry in self._handle.list(path).wait()]

    def upload(self, host_path: Path, path: Path) -> CopyReport:
        """Copies a file or directory of this machine to exactly this path in the sandbox."""
        return CopyReport(*self._handle.upload(host_path, path).wait())

    def download(self, path: Path, host_path: Path) -> CopyReport:
        """Copies a file or directory of the sandbox to exactly this path on this machine.

        Links that lead out of the directory, devices, sockets and pipes are skipped and reported.
        """
        return CopyReport(*self._handle.download(path, host_path).wait())

    def fork(self) -> Sandbox:
        """Creates a second sandbox with the same limits and files, without processes and shell state.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.write("x", "1")
        ...     with sandbox.fork() as other:
        ...         other.write("x", "2")
        ...     sandbox.read_text("x")
        '1'
        """
        return type(self)._of(self._handle.fork().wait())

    def snapshot(self, name: str) -> None:
        """Saves the files as an image of this name, from which sandboxes can be created."""
        self._handle.snapshot(name).wait()

    def expose(self, port: int) -> str:
        """Makes a port inside reachable at a port of this machine's loopback address, until the sandbox is closed.

        Returns the address as a URL. Native runtime only. Any user of this machine can connect to it.
        """
        url: str = self._handle.expose(port).wait()
        return url

    def close(self) -> None:
        """Kills everything in the sandbox and removes it; returns when it is gone. Commands that run in other threads
        fail with `SandboxClosed`. Closing it again does nothing."""
        self._handle.close().wait()
