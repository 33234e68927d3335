"""`Observation`: the result of a tool call as the model reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._reference import texts

if TYPE_CHECKING:
    from .action import Action

__all__ = ["CONTINUE_MSG", "Observation"]

CONTINUE_MSG = texts.NO_TOOL_CALL


class Observation:
    """The result of one action. `str()` gives the text for the model.

    Of output with more than `2 * num_lines` lines, the first and last `num_lines` are kept. With `stdout` or `stderr`
    the streams are shown apart, else `bash_output` is shown.
    """

    def __init__(
        self,
        bash_output: str,
        error_code: int | str,
        action: Action | None,
        num_lines: int = 40,
        stdout: str | None = None,
        stderr: str | None = None,
    ) -> None:
        self.bash_output = bash_output
        self.error_code = error_code
        self.action = action
        self.num_lines = num_lines
        self.stdout = stdout
        self.stderr = stderr

    def _truncate_output(self, output: str | None) -> str:
        lines = (output or "").splitlines()
        if len(lines) <= 2 * self.num_lines:
            return output or ""
        # `lines[-0:]` would be all of them.
        tail = lines[len(lines) - self.num_lines :]
        return "\n".join([*lines[: self.num_lines], *texts.LINES_LEFT_OUT, *tail])

    def __str__(self) -> str:
        name = getattr(self.action, "function_name", "") if self.action else ""
        if not name:
            return CONTINUE_MSG
        if name in ("finish", "submit"):
            return "<<< Finished >>>"
        # The backslashes are part of the format: they once kept a terminal library from reading markup.
        title = f"Execution output of \\[{name}]:"
        if name not in ("execute_bash", "bash"):
            return f"{title}\n{self.bash_output}"
        parts = [f"Exit code: {self.error_code}", title]
        if self.stdout is None and self.stderr is None:
            return "\n".join([*parts, self._truncate_output(self.bash_output)])
        stdout, stderr = self._truncate_output(self.stdout), self._truncate_output(self.stderr)
        parts.append("\\[STDOUT]\n" + (stdout if stdout.strip() else ""))
        if stderr.strip():
            parts.append(f"\\[STDERR]\n{stderr}")
        return "\n".join(parts)
