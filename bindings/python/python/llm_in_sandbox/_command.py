"""The result of a command."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import CommandError

__all__ = ["CommandResult", "CopyReport", "Entry"]

#: What `_native` returns for a command: exit code, the streams as bytes, their texts where bytes are missing, seconds,
#: the limit that was reached, whether the shell's state was lost.
RawResult = tuple["int | None", bytes, bytes, "str | None", "str | None", float, "str | None", bool]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended, and what it wrote.

    >>> from llm_in_sandbox import Sandbox
    >>> with Sandbox() as sandbox:
    ...     result = sandbox.run("echo out; echo err >&2; exit 3")
    >>> result.exit_code, result.stdout, result.stderr
    (3, 'out\\n', 'err\\n')
    """

    exit_code: int | None
    """The exit code, 128 + N after signal N, or `None` after a timeout."""
    stdout_bytes: bytes = field(repr=False)
    """Standard output: all of it, or its start and end where `truncated`."""
    stderr_bytes: bytes = field(repr=False)
    """Standard error, likewise."""
    duration: float
    """How long it ran, in seconds."""
    limit: str | None = None
    """The limit it reached: "oom", "pids", "disk" or "timeout"."""
    shell_lost: bool = False
    """Whether the persistent shell ended with the command, and its variables are lost."""
    _stdout_text: str | None = field(default=None, repr=False)
    _stderr_text: str | None = field(default=None, repr=False)
    command: str | None = field(default=None, repr=False)
    """The command, for messages."""

    @property
    def stdout(self) -> str:
        """Standard output as text. Bytes that are not UTF-8 become U+FFFD; a line marks what is missing."""
        text = self._stdout_text
        return self.stdout_bytes.decode("utf-8", "replace") if text is None else text

    @property
    def stderr(self) -> str:
        """Standard error as text, likewise."""
        text = self._stderr_text
        return self.stderr_bytes.decode("utf-8", "replace") if text is None else text

    @property
    def timed_out(self) -> bool:
        """Whether the command was stopped by its time limit."""
        return self.exit_code is None

    @property
    def truncated(self) -> bool:
        """Whether a part of the output is missing, because it was longer than `max_output`."""
        return self._stdout_text is not None or self._stderr_text is not None

    @property
    def out_of_memory(self) -> bool:
        """Whether the memory limit killed one of its processes."""
        return self.limit == "oom"

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0

    def check(self) -> CommandResult:
        """Returns the result itself if the command exited with 0.

        Raises:
            CommandError: if it did not.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.run("exit 3").check()
        Traceback (most recent call last):
        llm_in_sandbox.errors.CommandError: `exit 3` exited with 3
        """
        if self.exit_code != 0:
            raise CommandError(self, self.command)
        return self


def command_result(raw: RawResult, command: str) -> CommandResult:
    """Builds a result from what `_native` returns."""
    code, stdout, stderr, stdout_text, stderr_text, duration, limit, lost = raw
    return CommandResult(
        code, stdout, stderr, duration, limit, lost, stdout_text, stderr_text, command
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a directory."""

    name: str
    """Its name in the directory."""
    kind: str
    """"file", "directory", "link" or "other"."""
    size: int
    """Bytes of a file; 0 for others."""
    mode: int
    """Permission bits."""

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied."""

    files: int
    """Number of files."""
    bytes: int
    """Their size."""
    skipped_count: int = 0
    """Number of entries that were not copied, such as sockets and links that lead out of the tree."""
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The first of them, each with the reason."""
