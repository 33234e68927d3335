"""Trajectories as HTML for notebooks. Whatever a model wrote is text: nothing of it is interpreted."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["command_of", "page", "shortened", "steps_table"]

#: Most steps that are shown; of more, the middle is left out.
_MOST_STEPS = 200
#: Most bytes of an image.
_MOST_IMAGE = 2 << 20
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_GOOD, _BAD, _PLAIN = "#1a7f37", "#b42318", "#555"


def shortened(text: str, most: int) -> str:
    """The text, or its start where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(text: str) -> str:
    # Characters that change the order of others would hide what a command does.
    visible = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
    return html.escape(visible)


def _pre(text: str) -> str:
    style = "white-space:pre-wrap;max-height:20em;overflow:auto;border-left:3px solid #ccc;padding-left:8px"
    return f'<pre style="{style}">{_escaped(shortened(text, 20_000))}</pre>'


def _badge(outcome: str) -> str:
    color = {"submitted": _GOOD, "infrastructure": _BAD, "running": _PLAIN}.get(outcome, "#9a6700")
    style = f"background:{color};color:white;border-radius:4px;padding:1px 6px"
    return f'<span style="{style}">{_escaped(outcome)}</span>'


def _head(task: str, model: str, outcome: str, usage: Mapping[str, Any]) -> str:
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    facts = [model, f"{usage['turns']} turns", f"{tokens} tokens"]
    facts.append(f"{usage['model_seconds'] + usage['tool_seconds']:.1f} s")
    if usage.get("cost") is not None:
        facts.append(f"${usage['cost']:.4f}")
    line = " · ".join(_escaped(str(fact)) for fact in facts if fact)
    return f"<p><b>{_escaped(shortened(task, 300))}</b></p><p>{_badge(outcome)} {line}</p>"


def command_of(name: str, parameters: Any) -> str:
    """What a tool call does, in a line or more."""
    if isinstance(parameters, Mapping):
        if name == "execute_bash" and "command" in parameters:
            return str(parameters["command"])
        if "command" in parameters and "path" in parameters:
            return f"{parameters['command']} {parameters['path']}"
    return "" if parameters in ({}, None) else json.dumps(parameters, ensure_ascii=False)


def _step(step: Mapping[str, Any]) -> str:
    action, metadata = step["action"], step["metadata"]
    name = str(action["function"] or "text")
    command = command_of(name, action["parameters"])
    code = metadata.get("exit_code")
    failed = f' <span style="color:{_BAD}">exit code {int(code)}</span>' if code else ""
    seconds = metadata.get("tool_time")
    took = "" if seconds is None else f' <span style="color:{_PLAIN}">{float(seconds):.1f} s</span>'
    title = f"{metadata.get('step')}. {name}"
    parts = [
        f"<details><summary>{_escaped(title)}: <code>{_escaped(shortened(command, 120))}</code>{failed}{took}</summary>"
    ]
    texts = [step["reasoning_content"], step["thought"]]
    details = action["parameters"]
    whole = json.dumps(details, ensure_ascii=False, indent=1) if name != "execute_bash" and details else command
    parts += [_pre(str(text)) for text in (*texts, whole, step["observation"]) if text]
    return "".join(parts) + "</details>"


def _image(data: bytes) -> str:
    kind = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
    if kind is None or len(data) > _MOST_IMAGE:
        return ""
    text = base64.b64encode(data).decode()
    return f'<img style="max-width:30em;display:block" src="data:{kind};base64,{text}">'


def page(
    task: str,
    model: str,
    outcome: str,
    usage: Mapping[str, Any],
    steps: Iterable[Mapping[str, Any]],
    answer: str | None,
    files: Mapping[str, bytes],
) -> str:
    """A whole episode."""
    parts = ['<div style="font-family:sans-serif;font-size:13px;max-width:60em">', _head(task, model, outcome, usage)]
    listed = list(steps)
    half = _MOST_STEPS // 2
    shown = listed if len(listed) <= _MOST_STEPS else [*listed[:half], *listed[-half:]]
    for number, step in enumerate(shown):
        if number == half and len(shown) < len(listed):
            parts.append(f"<p>{len(listed) - len(shown)} steps are left out</p>")
        parts.append(_step(step))
    if answer is not None:
        parts.append(f"<p><b>Answer</b></p>{_pre(answer)}")
    if files:
        names = ", ".join(f"{name} ({len(data)} B)" for name, data in sorted(files.items()))
        parts.append(f"<p>Files: {_escaped(shortened(names, 1000))}</p>")
        parts += [image for _, data in sorted(files.items())[:20] if (image := _image(data))]
    return "".join(parts) + "</div>"


def steps_table(task: str, outcome: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """An episode that runs: a row for each tool call, with its state."""
    parts = [
        '<div style="font-family:sans-serif;font-size:13px;max-width:60em">',
        f"<p><b>{_escaped(shortened(task, 300))}</b> {_badge(outcome)}</p><table>",
    ]
    for name, command, state in rows:
        color = _BAD if state.startswith("exit code") else _PLAIN
        parts.append(
            f'<tr><td style="text-align:left">{_escaped(name)}</td>'
            f'<td style="text-align:left"><code>{_escaped(shortened(command, 120))}</code></td>'
            f'<td style="text-align:left;color:{color}">{_escaped(state)}</td></tr>'
        )
    return "".join(parts) + "</table></div>"
