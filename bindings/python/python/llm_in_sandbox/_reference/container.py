"""A sandbox with the methods of docker-py's `Container` that code around `DockerRuntime` calls."""

from __future__ import annotations

import io
import os
import shlex
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from .. import Sandbox

__all__ = ["Client", "Container", "ExecResult", "copy_out", "variables"]

#: Bytes kept of each output stream; of more, the middle is left out.
_MAX_OUTPUT = 256 << 20
#: Bytes of an archive per piece.
_PIECE = 2 << 20


class ExecResult(NamedTuple):
    """How a command ended. `output` is both streams in one, or a pair of them with `demux`; an empty one is `None`."""

    exit_code: int | None
    output: Any


class Client:
    """Stands for docker-py's client, which `DockerRuntime` has there: it can be closed, and has nothing else."""

    def close(self) -> None:
        """Does nothing: the sandbox ends with its runtime."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"`client.{name}`: sandboxes have no Docker client; use the methods of DockerRuntime, or Sandbox"
        )


class Container:
    """A sandbox as code written for docker-py uses it."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self.sandbox = sandbox
        self.name = name

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.id

    short_id = id

    @property
    def status(self) -> str:
        """`running` or `exited`."""
        return "exited" if self.sandbox.closed else "running"

    def exec_run(
        self,
        cmd: str | Sequence[str],
        workdir: str | None = None,
        environment: Mapping[str, str] | Sequence[str] | None = None,
        demux: bool = False,
        timeout: float | None = None,
    ) -> ExecResult:
        """Runs a command, given as words or as text that is split into words, without standard input.

        `timeout` is an addition: after so many seconds all that the command started is killed, and the exit code is
        124, as that of the program `timeout`.
        """
        argv = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        if not demux:
            argv = ["sh", "-c", 'exec "$@" 2>&1', "sh", *argv]
        env = variables(environment)
        ended = self.sandbox.run(argv, cwd=workdir, env=env, timeout=timeout, max_output=_MAX_OUTPUT)
        code = 124 if ended.exit_code is None else ended.exit_code
        if demux:
            return ExecResult(code, (ended.stdout_bytes or None, ended.stderr_bytes or None))
        return ExecResult(code, ended.stdout_bytes)

    def put_archive(self, path: str, data: bytes | io.IOBase) -> bool:
        """Unpacks a tar archive into a directory."""
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(fileobj=stream, mode="r|*") as archive:
                _unpack(archive, scratch)
            self.sandbox.upload(scratch, path)
        return True

    def get_archive(self, path: str, chunk_size: int = _PIECE) -> tuple[Iterator[bytes], dict[str, Any]]:
        """A file or directory as a tar archive, in pieces, with its name and size."""
        name = os.path.basename(path.rstrip("/")) or "."
        packed = tempfile.TemporaryFile()
        with tempfile.TemporaryDirectory() as scratch:
            copied = Path(scratch, "copied")
            self.sandbox.download(path, copied)
            stat = copied.lstat()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(copied, arcname=name)
        packed.seek(0)
        return _pieces(packed, chunk_size), {"name": name, "size": stat.st_size, "mode": stat.st_mode, "linkTarget": ""}

    def stop(self, timeout: float | None = None) -> None:
        """Ends all processes and removes the sandbox."""
        self.sandbox.close()

    def kill(self, signal: str | int | None = None) -> None:
        """Ends all processes and removes the sandbox."""
        self.sandbox.close()

    def remove(self, force: bool = False, v: bool = False) -> None:
        """Removes the sandbox."""
        self.sandbox.close()

    def reload(self) -> None:
        """Does nothing: `status` is always current."""


def copy_out(sandbox: Sandbox, source: str, destination: str | Path) -> None:
    """Copies the content of a directory, or a file, into a host directory, which may have files already."""
    if sandbox.run(["test", "-d", source]).exit_code == 0:
        sandbox.download(source, destination)
    else:
        sandbox.download(source, os.path.join(destination, os.path.basename(source)))


def variables(environment: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    if environment is None:
        return {}
    if isinstance(environment, Mapping):
        return {name: str(value) for name, value in environment.items()}
    return dict(entry.split("=", 1) for entry in environment if "=" in entry)


def _pieces(stream: Any, size: int) -> Iterator[bytes]:
    with stream:
        while piece := stream.read(size):
            yield piece


def _unpack(archive: tarfile.TarFile, directory: str) -> None:
    """Unpacks an archive, nothing of it outside the directory. Python 3.10 and 3.11 have filters since 3.10.12 and 3.11.4."""
    if hasattr(tarfile, "tar_filter"):
        archive.extractall(directory, filter="tar")
        return
    for member in archive:
        for path in (member.name, member.linkname):
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"the archive's entry {member.name!r} leads outside its directory")
        archive.extract(member, directory)
