"""`str_replace_editor` on any runtime that has `run(command) -> (output, status)`.

Files are read and written with shell commands, because that is all such a runtime offers. As in the reference, a path is
inserted into the command unquoted, so `~` and variables are expanded; tabs become spaces in edited files; a written file
ends with a line break of its own; and the output of a failed `cat` counts as content.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Protocol

from . import texts

__all__ = ["Runner", "edit"]

#: Lines shown before and after a change.
_CONTEXT = 4
#: Characters of an observation.
_SHOWN = 10_000
#: Characters written by one command: Linux limits one argument to 128 KiB, and a character has up to 4 bytes.
_CHUNK = 16_000

_VIEWABLE = (".py", ".rst")


class Runner(Protocol):
    """A runtime, as far as the editor needs it."""

    def run(self, code: str) -> tuple[str, str]:
        """Runs a command; returns its output, and its exit code or an error."""
        ...


def edit(runner: Runner, parameters: Mapping[str, Any]) -> str:
    """Executes one call of the tool and returns the text for the model."""
    command, path = parameters.get("command", ""), parameters.get("path", "")
    if not command or not path:
        return "Error: command and path are required."
    if command == "view":
        return _view(runner, path, parameters.get("view_range"))
    if command == "create":
        return _create(runner, path, str(parameters.get("file_text", "")))
    if command == "str_replace":
        return _replace(runner, path, parameters.get("old_str", ""), parameters.get("new_str", ""))
    if command == "insert":
        return _insert(runner, path, parameters.get("insert_line", 0), parameters.get("new_str", ""))
    return f"Unknown command: {command}"


def _view(runner: Runner, path: str, view_range: Any) -> str:
    kind, _ = runner.run(f"if test -d {path}; then echo dir; elif test -f {path}; then echo file; else echo none; fi")
    if kind.strip() == "dir":
        return _view_directory(runner, path)
    if kind.strip() != "file":
        return f"Error: Path not found: {path}"
    if not path.endswith(_VIEWABLE):
        return texts.not_viewable(path)
    content, _ = runner.run(f"cat {path}")
    if not content:
        return f"(empty file: {path})"
    lines = content.expandtabs().split("\n")
    first, last = 1, len(lines)
    if view_range and len(view_range) == 2:
        first, last = view_range
        if not 1 <= first <= len(lines):
            return f"Error: Invalid view_range {view_range}: start line must be in [1, {len(lines)}]"
        if last == -1:
            last = len(lines)
        elif not first <= last <= len(lines):
            return (
                f"Error: Invalid view_range {view_range}: end must be >= start and <= {len(lines)},"
                " or -1 to view until end."
            )
    return _clipped(f"{_heading(path)}\n{_numbered(lines[first - 1 : last], first)}")


def _view_directory(runner: Runner, path: str) -> str:
    kinds = r"-type d -o -name '*.py' -o -name '*.rst'"
    listing, _ = runner.run(rf"find {path} -maxdepth 2 -not -path '*/.*' \( {kinds} \) | head -100")
    if not listing:
        return f"(empty directory: {path})"
    return f"Here's the files and directories up to 2 levels deep in {path}, excluding hidden:\n{listing}"


def _create(runner: Runner, path: str, text: str) -> str:
    made, status = runner.run(f"mkdir -p $(dirname {path})")
    if not _failed(status):
        made, status = _write(runner, path, text)
    if _failed(status):
        return f"Error creating file: {made}"
    return f"File created at {path}. {_snippet(text, path, 1)}{texts.REVIEW_FILE}"


def _replace(runner: Runner, path: str, old: str, new: str | None) -> str:
    if not old:
        return "Error: old_str is required for str_replace."
    content, _ = runner.run(f"cat {path}")
    if not content:
        return f"Error: Could not read file {path}"
    content, old, new = content.expandtabs(), old.expandtabs(), (new or "").expandtabs()
    count = content.count(old)
    if count == 0:
        return f"Error: No occurrences of old_str found in {path} for replacement."
    if count > 1:
        return (
            f"Error: Multiple occurrences ({count}) of old_str found in {path}."
            " Please ensure it is unique before using str_replace."
        )
    before, after = content.split(old)
    changed = before + new + after
    if _failed(_write(runner, path, changed)[1]):
        return f"Error writing file: {path}"
    line = before.count("\n")
    start = max(0, line - _CONTEXT)
    shown = changed.split("\n")[start : line + _CONTEXT + new.count("\n") + 1]
    snippet = _snippet("\n".join(shown), f"a snippet of {path}", start + 1)
    return f"The file {path} has been edited. {snippet}{texts.REVIEW_REPLACEMENT}"


def _insert(runner: Runner, path: str, line: int, new: str) -> str:
    if not new:
        return "Error: new_str is required for insert."
    content, _ = runner.run(f"cat {path}")
    lines = content.expandtabs().split("\n") if content else []
    if not 0 <= line <= len(lines):
        return f"Error: Invalid insert_line {line}. Must be in [0, {len(lines)}]."
    added = new.expandtabs().split("\n")
    before, after = lines[:line], lines[line:]
    if _failed(_write(runner, path, "\n".join([*before, *added, *after]))[1]):
        return f"Error writing file: {path}"
    start = max(0, line - _CONTEXT)
    shown = "\n".join([*before[start:], *added, *after[:_CONTEXT]])
    snippet = _snippet(shown, "a snippet of the edited file", start + 1)
    return f"The file {path} has been edited. {snippet}{texts.REVIEW_INSERTION}"


def _write(runner: Runner, path: str, text: str) -> tuple[str, str]:
    """Writes the text and a line break. Returns the output of the last command, and its status."""
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)] or [""]
    output, status = "", "0"
    for number, chunk in enumerate(chunks):
        end = r"\n" if number == len(chunks) - 1 else ""
        redirect = ">>" if number else ">"
        output, status = runner.run(f"printf '%s{end}' {shlex.quote(chunk)} {redirect} {path}")
        if _failed(status):
            break
    return output, status


def _failed(status: str) -> bool:
    # A timeout is "-1" and counts as success, as in the reference.
    return "Error" in str(status)


def _heading(what: str) -> str:
    return f"Here's the result of running `cat -n` on {what}:"


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def _snippet(content: str, what: str, first: int) -> str:
    lines = _clipped(content).expandtabs().split("\n")
    return f"{_heading(what)}\n{_numbered(lines, first)}\n"


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + texts.CLIPPED
