"""Messages in the format of OpenAI's chat completions, which most Python code knows, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["function_reply", "json_lines", "to_openai", "tools_to_openai"]

Json = dict[str, Any]


def json_lines(text: str) -> list[Json]:
    """The objects of a text with one in each line. Only line feeds end lines: JSON may contain U+2028 and others as they are."""
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def to_openai(message: Mapping[str, Any]) -> Json:
    """One message of an episode as a message of chat completions."""
    role = message["role"]
    if role == "system":
        return {"role": "system", "content": message["text"]}
    if role == "user":
        return {"role": "user", "content": _content(message["content"])}
    if role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message["call_id"],
            "name": message["name"],
            "content": _content(message["content"]),
        }
    made: Json = {"role": "assistant", "content": message.get("text") or ""}
    if message.get("reasoning"):
        made["reasoning_content"] = message["reasoning"]
    # A response whose calls are a part of its text is given back as it was written.
    if message.get("said") is not None:
        made["content"] = message["said"]
    elif message.get("calls"):
        made["tool_calls"] = [_call(call) for call in message["calls"]]
    return made


def _call(call: Mapping[str, Any]) -> Json:
    arguments = call["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": text},
    }


def _content(parts: list[Json]) -> str | list[Json]:
    """A text, or a list of parts where there is an image."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {
            "type": "image_url",
            "image_url": {"url": f"data:{part['media_type']};base64,{part['data']}"},
        }
        for part in parts
    ]


def tools_to_openai(specs: list[Json]) -> list[Json]:
    """Tools as chat completions take them."""
    return [{"type": "function", "function": spec} for spec in specs]


def function_reply(reply: object) -> Json:
    """What a function returned as a model, in the form `_native` takes.

    It is a text, a message as in chat completions, or a whole response of them; objects of client libraries that have
    `model_dump` as well.
    """
    dump = getattr(reply, "model_dump", None)
    if callable(dump):
        reply = dump()
    given: Any = {"content": reply} if isinstance(reply, str) else reply
    if not isinstance(given, Mapping):
        raise TypeError(f"a model returns a text or a message, not {type(reply).__name__}")
    message: Any = given
    tokens: list[int] | None = None
    finish: object = message.get("finish_reason")
    if "choices" in message:
        usage = message.get("usage") or {}
        if "prompt_tokens" in usage and "completion_tokens" in usage:
            tokens = [int(usage["prompt_tokens"]), int(usage["completion_tokens"])]
        choice = message["choices"][0]
        finish = choice.get("finish_reason")
        message = choice["message"]
    content: Any = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    calls: list[list[str]] = []
    for call in message.get("tool_calls") or []:
        function = call.get("function", call)
        arguments = function.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append([str(call.get("id") or ""), str(function["name"]), text])
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return {
        "text": content,
        "reasoning": reasoning if isinstance(reasoning, str) else "",
        "calls": calls,
        "cut_off": finish == "length",
        "tokens": tokens,
    }
