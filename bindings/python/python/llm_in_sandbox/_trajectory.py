"""`Trajectory`: what happened in an episode."""

from __future__ import annotations

import json
import os
from importlib import import_module
from datetime import datetime, timezone
from typing import Any

from . import _html, _native
from ._messages import Json, json_lines, to_openai
from .errors import UsageError

__all__ = ["Trajectory"]


class Trajectory:
    """What happened in an episode: messages, tool calls, results, usage, and the files the model left.

    It can be pickled. `events` are the lines of an `events.jsonl` of the command line; the rest is derived from them.
    """

    def __init__(
        self,
        events: list[Json],
        *,
        answer: str | None = None,
        files: dict[str, bytes] | None = None,
    ) -> None:
        text = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        record, messages = _native.trajectory_of(text)
        self.events = events
        self.answer = answer
        """The content of `answer.txt` in the output directory, if there is one."""
        self.files: dict[str, bytes] = files if files is not None else {}
        """The files of the output directory, by path."""
        self._record: Json = json.loads(record)
        self._messages: list[Json] = json.loads(messages)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Reads `events.jsonl`, or the directory of a run of the command line, which has one."""
        where = os.fspath(path)
        files: dict[str, bytes] = {}
        if os.path.isdir(where):
            files = read_files(os.path.join(where, "files"))
            where = os.path.join(where, "events.jsonl")
        with open(where, encoding="utf-8") as file:
            text = file.read()
        try:
            events = json_lines(text)
        except ValueError as error:
            raise UsageError(f"{where} is not the events of an episode: {error}") from error
        answer = files.get("answer.txt")
        return cls(events, answer=None if answer is None else answer.decode("utf-8", "replace").strip(), files=files)

    @property
    def task(self) -> str:
        """The task as it was given."""
        task: str = self._record["problem_statement"]
        return task

    @property
    def model(self) -> str:
        """The model's name."""
        name: str = self._record["metadata"].get("model", "")
        return name

    @property
    def messages(self) -> list[Json]:
        """The conversation in the format of OpenAI's chat completions."""
        return [to_openai(message) for message in self._full_history()]

    def _full_history(self) -> list[Json]:
        """The messages, and the last response where its results are missing, as that of a submission."""
        messages = list(self._messages)
        responses = sum(1 for message in messages if message["role"] == "assistant")
        replied = [event for event in self.events if event.get("kind") == "replied"]
        if responses < len(replied) and not any(e.get("kind") == "resumed" for e in self.events):
            messages.append({"role": "assistant", **replied[-1]["message"]})
        return messages

    @property
    def outcome(self) -> str:
        """How the episode ended: "submitted", "max_turns", "max_tokens", "context_full", "deadline", "cost",
        "no_tool_calls", "cancelled" or "infrastructure"; "unfinished" if it did not."""
        outcome: str = self._record["metadata"].get("outcome", "unfinished")
        return outcome

    @property
    def cause(self) -> str | None:
        """Why the infrastructure failed, if it did."""
        cause: str | None = self._record["metadata"].get("cause")
        return cause

    @property
    def submitted(self) -> bool:
        """Whether the model declared its work done."""
        return self.outcome == "submitted"

    @property
    def usage(self) -> Json:
        """Tokens, turns, seconds, and dollars where the price is known."""
        spent: Json = self._record["metadata"].get("spent", {})
        tokens = spent.get("usage", {})
        return {
            "turns": spent.get("turns", 0),
            "prompt_tokens": tokens.get("input", 0),
            "completion_tokens": tokens.get("output", 0),
            "cached_tokens": tokens.get("cached", 0),
            "context_tokens": spent.get("context", 0),
            "cost": spent.get("cost"),
            "model_seconds": spent.get("model_ms", 0) / 1000,
            "tool_seconds": spent.get("tool_ms", 0) / 1000,
        }

    @property
    def steps(self) -> list[Json]:
        """One step for each tool call: `thought`, `action`, `observation`, `metadata`."""
        steps: list[Json] = self._record["steps"]
        return steps

    def to_dict(self) -> Json:
        """The trajectory as in `trajectory.json` of the command line: `problem_statement`, `steps`, `metadata`."""
        record: Json = json.loads(json.dumps(self._record))
        return record

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the events, one JSON object in a line, so that `from_file` can read them."""
        with open(path, "w", encoding="utf-8") as file:
            for event in self.events:
                file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def to_atif(self) -> Json:
        """The trajectory in the Agent Trajectory Interchange Format, version 1.7."""
        steps: list[Json] = []
        replies = [event for event in self.events if event.get("kind") == "replied"]
        turn = 0
        for message in self._full_history():
            if message["role"] == "tool" and steps and steps[-1]["source"] == "agent":
                results = steps[-1].setdefault("observation", {"results": []})["results"]
                content = to_openai(message)["content"]
                results.append({"source_call_id": message["call_id"], "content": _text(content)})
                continue
            step: Json = {"step_id": len(steps) + 1}
            if message["role"] == "assistant":
                step.update(_agent_step(message, replies[turn] if turn < len(replies) else None))
                if turn < len(replies) and "at" in replies[turn]:
                    step["timestamp"] = _time(replies[turn]["at"])
                turn += 1
            else:
                step["source"] = "system" if message["role"] == "system" else "user"
                step["message"] = _text(to_openai(message)["content"])
            steps.append(step)
        usage = self.usage
        metrics: Json = {
            "total_prompt_tokens": usage["prompt_tokens"],
            "total_completion_tokens": usage["completion_tokens"],
            "total_cached_tokens": usage["cached_tokens"],
            "total_steps": len(steps),
        }
        if usage["cost"] is not None:
            metrics["total_cost_usd"] = usage["cost"]
        return {
            "schema_version": "ATIF-v1.7",
            "session_id": str(self._record["metadata"].get("started", 0)),
            "agent": {
                "name": "llm-in-sandbox",
                "version": self._record["metadata"].get("program") or "unknown",
                "model_name": self.model,
            },
            "steps": steps,
            "final_metrics": metrics,
            "extra": {"outcome": self.outcome, "cause": self.cause, "answer": self.answer},
        }

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row for each step. Needs pandas."""
        pd = import_module("pandas")

        rows: list[Json] = []
        for step in self.steps:
            metadata = step["metadata"]
            rows.append(
                {
                    "step": metadata.get("step"),
                    "turn": metadata.get("turn"),
                    "thought": step["thought"],
                    "reasoning": step["reasoning_content"],
                    "tool": step["action"]["function"],
                    "arguments": step["action"]["parameters"],
                    "observation": step["observation"],
                    "exit_code": metadata.get("exit_code"),
                    "model_seconds": metadata.get("exec_time"),
                    "tool_seconds": metadata.get("tool_time"),
                    "prompt_tokens": metadata.get("usage", {}).get("input"),
                    "completion_tokens": metadata.get("usage", {}).get("output"),
                }
            )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        answer = "" if self.answer is None else f", answer={_html.shortened(self.answer, 60)!r}"
        return f"<Trajectory {self.outcome}, {self.usage['turns']} turns{answer}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return _html.page(self.task, self.model, self.outcome, self.usage, self.steps, self.answer, self.files)


def _agent_step(message: Json, reply: Json | None) -> Json:
    step: Json = {"source": "agent", "message": message.get("text") or ""}
    if message.get("reasoning"):
        step["reasoning_content"] = message["reasoning"]
    calls: list[Json] = []
    for call in message.get("calls") or []:
        arguments: Any = call["arguments"]
        if not isinstance(arguments, dict):
            arguments = {"malformed": arguments}
        calls.append(
            {
                "tool_call_id": call["id"],
                "function_name": call["name"],
                "arguments": arguments,
            }
        )
    if calls:
        step["tool_calls"] = calls
    if reply is not None:
        usage = reply.get("usage", {})
        step["metrics"] = {
            "prompt_tokens": usage.get("input", 0),
            "completion_tokens": usage.get("output", 0),
            "cached_tokens": usage.get("cached", 0),
        }
        if reply.get("cost") is not None:
            step["metrics"]["cost_usd"] = reply["cost"]
    return step


def _text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "[image]") for part in content)


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_files(directory: str, most: int = 256 << 20) -> dict[str, bytes]:
    """The regular files below a directory by path, as many as fit into `most` bytes."""
    files: dict[str, bytes] = {}
    for base, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            path = os.path.join(base, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            size = os.path.getsize(path)
            if size > most:
                continue
            most -= size
            with open(path, "rb") as file:
                files[os.path.relpath(path, directory)] = file.read()
    return files
