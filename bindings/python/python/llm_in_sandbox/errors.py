"""Exceptions. All of them inherit from `SandboxError` and can be pickled."""

from __future__ import annotations

import errno as _errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._command import CommandResult
    from ._trajectory import Trajectory

__all__ = [
    "CommandError",
    "ImageNotFound",
    "InfrastructureError",
    "ModelError",
    "PathError",
    "PathNotFound",
    "SandboxClosed",
    "SandboxError",
    "SandboxGone",
    "SandboxUnavailable",
    "StalledError",
    "UsageError",
]


class SandboxError(Exception):
    """Base class of all exceptions of this package."""


class UsageError(SandboxError, ValueError):
    """An argument has a value that cannot work, such as a memory limit of one byte."""


class ImageNotFound(UsageError):
    """The image of a sandbox does not exist."""


class InfrastructureError(SandboxError):
    """The machine or a service failed, not what ran in the sandbox. The operation can be tried again."""

    trajectory: Trajectory | None = None
    """What happened in the episode until then, if it is one that failed."""


class SandboxUnavailable(InfrastructureError):
    """This machine cannot create such a sandbox; the message says what is missing."""


class SandboxClosed(SandboxError):
    """The sandbox was closed, or belongs to another process."""


class SandboxGone(InfrastructureError):
    """The sandbox ended without being closed, for instance because its processes were killed from outside."""


class StalledError(SandboxGone):
    """The sandbox made no progress for too long, and was removed."""


class ModelError(InfrastructureError):
    """The model could not answer: its server failed, or the Python function that stands for it raised."""


class PathError(SandboxError, OSError):
    """A path does not fit the operation. `errno` and `filename` are set where they are known."""

    def __init__(self, message: str, path: str | None = None, number: int | None = None) -> None:
        super().__init__(message)
        self._message = message
        self.filename = path
        self.errno = number

    def __str__(self) -> str:
        return self._message if self.filename is None else f"{self.filename}: {self._message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._message, self.filename, self.errno))


class PathNotFound(PathError, FileNotFoundError):
    """There is no file or directory at this path."""

    def __init__(
        self, message: str, path: str | None = None, number: int | None = _errno.ENOENT
    ) -> None:
        super().__init__(message, path, number)


class CommandError(SandboxError):
    """A command failed whose success was required; `result` says how it ended."""

    def __init__(self, result: CommandResult, command: str | None = None) -> None:
        super().__init__(result, command)
        self.result = result
        self.command = command

    def __str__(self) -> str:
        result = self.result
        if result.out_of_memory:
            end = "ran out of memory"
        elif result.timed_out:
            end = f"was stopped after {result.duration:.3g} s"
        else:
            end = f"exited with {result.exit_code}"
        subject = "the command" if self.command is None else f"`{_shortened(self.command, 200)}`"
        output = (result.stderr.strip() or result.stdout.strip())[-2000:]
        return f"{subject} {end}" + (f": {output}" if output else "")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
