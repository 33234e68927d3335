"""`Progress`: an episode shown while it runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, TextIO

from ._html import command_of, shortened, steps_table
from ._messages import Json

__all__ = ["Progress"]

#: Most rows of the table.
_MOST_ROWS = 30


class Progress:
    """Shows an episode while it runs: in a notebook as a table that grows, elsewhere as lines on standard error.

    Pass it as `on_event` of `Agent.run` or `Agent.arun`, one for each episode.

    >>> import sys
    >>> from llm_in_sandbox import Agent, Progress
    >>> def model(messages, tools):
    ...     return {"content": "", "tool_calls": [{"id": "1", "function": {"name": "submit", "arguments": {}}}]}
    >>> trajectory = Agent(model).run("Nothing to do.", on_event=Progress(sys.stdout))
    turn 1: submit
    turn 2: submit
    ended: submitted
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._task = ""
        self._outcome = "running"
        self._rows: list[tuple[str, str, str]] = []
        self._waiting: dict[str, int] = {}
        """The rows of calls without a result, by call."""
        self._display: Any = _notebook_display() if file is None else None

    def __call__(self, event: Json) -> None:
        """Takes the next event of the episode."""
        kind = event.get("kind")
        line = None
        if kind == "started":
            self._task = str(event.get("problem_statement", ""))
        elif kind == "replied":
            line = self._replied(event)
        elif kind == "observed":
            line = self._observed(event)
        elif kind == "ended":
            self._outcome = str(event.get("outcome", "ended"))
            line = f"ended: {self._outcome}"
        if self._display is not None:
            self._display.show(self._repr_html_())
        elif line is not None:
            print(_printable(line), file=self._file or sys.stderr, flush=True)

    def _replied(self, event: Json) -> str:
        turn = f"turn {event.get('turn')}"
        calls: list[Json] = event.get("message", {}).get("calls") or []
        if not calls:
            self._rows.append((turn, shortened(str(event.get("message", {}).get("text", "")), 120), ""))
            return f"{turn}: no tool call"
        lines: list[str] = []
        for call in calls:
            command = command_of(str(call["name"]), call["arguments"])
            self._waiting[str(call["id"])] = len(self._rows)
            self._rows.append((f"{turn}: {call['name']}", command, "…"))
            lines.append(f"{turn}: {call['name']} {shortened(command, 200)}".rstrip())
        return "\n".join(lines)

    def _observed(self, event: Json) -> str | None:
        row = self._waiting.pop(str(event.get("message", {}).get("call_id")), None)
        code = event.get("exit_code")
        state = f"exit code {code}" if code else f"{event.get('millis', 0) / 1000:.1f} s"
        if row is not None:
            name, command, _ = self._rows[row]
            self._rows[row] = (name, command, state)
        return f"  {state}" if code else None

    def _repr_html_(self) -> str:
        """For notebooks."""
        return steps_table(self._task, self._outcome, self._rows[-_MOST_ROWS:])


def _printable(text: str) -> str:
    """The text without characters that would change a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


class _Display:
    """A place in the output of a notebook's cell."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Shows HTML in place of what is shown."""
        page = self._module.HTML(text)
        if self._handle is None:
            self._handle = self._module.display(page, display_id=True)
        else:
            self._handle.update(page)


def _notebook_display() -> _Display | None:
    """The display of the notebook that this is called in, if it is one."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return _Display(import_module("IPython.display"))
