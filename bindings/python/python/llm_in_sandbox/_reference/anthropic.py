"""Anthropic's messages, translated from and to OpenAI's chat completions. Pure functions over JSON."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["VERSION", "request", "to_openai"]

Json = dict[str, Any]

#: Version of the protocol.
VERSION = "2023-06-01"

_STOPS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


def request(body: Json) -> Json:
    """The body of a request: system prompts become a field, tool results parts of user messages."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    made: Json = {"model": body["model"], "max_tokens": body["max_tokens"], "messages": []}
    if system:
        made["system"] = "\n\n".join(system)
    for message in body["messages"]:
        if message["role"] == "system":
            continue
        role, parts = _message(message)
        # Roles have to alternate.
        if made["messages"] and made["messages"][-1]["role"] == role:
            made["messages"][-1]["content"].extend(parts)
        else:
            made["messages"].append({"role": role, "content": parts})
    if body.get("tools"):
        made["tools"] = [_tool(tool["function"]) for tool in body["tools"]]
    if body.get("temperature") is not None:
        made["temperature"] = min(body["temperature"], 1.0)
    return made


def to_openai(response: Json) -> Json:
    """The response in OpenAI's form; thinking becomes `reasoning_content`."""
    message: Json = {"role": "assistant", "content": None}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    parts: list[Json] = response.get("content") or []
    for part in parts:
        if part.get("type") == "text":
            texts.append(part["text"])
        elif part.get("type") == "thinking":
            thoughts.append(part["thinking"])
        elif part.get("type") == "tool_use":
            function = {"name": part["name"], "arguments": json.dumps(part["input"])}
            calls.append({"id": part["id"], "type": "function", "function": function})
    message["content"] = "".join(texts) or None
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    usage: Json = response.get("usage") or {}
    counts = {"prompt_tokens": usage.get("input_tokens", 0), "completion_tokens": usage.get("output_tokens", 0)}
    reason = _STOPS.get(response.get("stop_reason") or "", "stop")
    choice = {"index": 0, "message": message, "finish_reason": reason}
    named = {"id": response.get("id"), "model": response.get("model")}
    return {**named, "object": "chat.completion", "choices": [choice], "usage": counts}


def _message(message: Json) -> tuple[str, list[Json]]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return "user", [result]
    parts = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    calls: list[Json] = message.get("tool_calls") or []
    for call in calls:
        function: Json = call["function"]
        used = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"] or "{}")}
        parts.append({"type": "tool_use", **used})
    return message["role"], parts


def _tool(function: Json) -> Json:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }
