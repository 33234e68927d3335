"""A server of OpenAI's chat completions that answers from a script. Standard library only: it runs with both packages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = "list[Any] | Callable[[list[dict[str, Any]]], Any]"


def say(text: str) -> dict[str, Any]:
    """A response without a call."""
    return {"role": "assistant", "content": text}


def call(name: str, arguments: dict[str, Any] | str, text: str = "", reasoning: str = "") -> dict[str, Any]:
    """A response with one call; arguments given as text are sent as they are."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    message = say(text)
    message["tool_calls"] = [{"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": written}}]
    if reasoning:
        message["reasoning_content"] = reasoning
    return message


def by_conversation(function: Callable[[list[dict[str, Any]]], Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """A script that depends on the conversation, for concurrent episodes."""
    return function


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.lock = threading.Lock()

    def answer(self, body: dict[str, Any]) -> Any:
        with self.lock:
            self.requests.append(body)
            number = len(self.requests) - 1
        if callable(self.script):
            return self.script(body["messages"])
        return self.script[number] if number < len(self.script) else 500


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = self.server.answer(body)
        status, text = (answer, "scripted failure") if isinstance(answer, int) else (200, "")
        if isinstance(answer, tuple):
            status, text = answer
        if status != 200:
            content = {"error": {"message": text, "type": "invalid_request_error", "code": None}}
        else:
            reason = "tool_calls" if answer.get("tool_calls") else "stop"
            content = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": answer, "finish_reason": reason}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def start(script: Any) -> Iterator[_Server]:
    """Serves until the block ends."""
    server = _Server(script)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
