"""A Python function as a server of OpenAI's chat completions on the loopback address, for the program."""

from __future__ import annotations

import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from ._messages import Json, function_reply
from ._model import ModelFunction
from ._tools import failure

__all__ = ["FunctionServer"]

#: The longest request.
_MAX_BODY = 256 << 20


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A benchmark connects as often as it has attempts at once; a connection that is refused waits for a second.
    request_queue_size = 1024


class FunctionServer:
    """Serves a function until it is closed. Calls need the key."""

    def __init__(self, function: ModelFunction, name: str) -> None:
        self.api_key = secrets.token_urlsafe(24)
        self.name = name
        self.error: BaseException | None = None
        """The last exception of the function, or the first that is not an `Exception`."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(200, {"object": "list", "data": [{"id": name, "object": "model"}]})

            def do_POST(self) -> None:
                if self.headers.get("Authorization") != f"Bearer {owner.api_key}":
                    self._reply(401, {"error": {"message": "wrong key"}})
                    return
                try:
                    length = int(self.headers.get("Content-Length") or 0)
                    if length > _MAX_BODY:
                        self._reply(413, {"error": {"message": "the request is too long"}})
                        return
                    body = json.loads(self.rfile.read(length))
                    messages, tools = body["messages"], body.get("tools") or []
                except (ValueError, LookupError, TypeError, AttributeError) as error:
                    self._reply(400, {"error": {"message": f"not a request of chat completions: {failure(error)}"}})
                    return
                try:
                    made = _completion(name, function(messages, tools))
                except BaseException as error:
                    # Also `SystemExit` and `KeyboardInterrupt`, which would otherwise end this thread alone.
                    owner._failed(error)
                    # Not to be repeated: the function decides itself what it retries.
                    self._reply(400, {"error": {"message": failure(error)}})
                    return
                self._reply(200, made)

            def _reply(self, status: int, value: Json) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _failed(self, error: BaseException) -> None:
        if self.error is None or isinstance(self.error, Exception):
            self.error = error

    def __enter__(self) -> FunctionServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _completion(name: str, value: object) -> Json:
    """A response of chat completions."""
    reply = function_reply(value)
    message: Json = {"role": "assistant", "content": reply["text"]}
    if reply["reasoning"]:
        message["reasoning_content"] = reply["reasoning"]
    if reply["calls"]:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": tool, "arguments": arguments}}
            for id_, tool, arguments in reply["calls"]
        ]
    finish = "length" if reply["cut_off"] else "tool_calls" if reply["calls"] else "stop"
    made: Json = {
        "id": "function",
        "object": "chat.completion",
        "created": 0,
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if reply["tokens"]:
        made["usage"] = {
            "prompt_tokens": reply["tokens"][0],
            "completion_tokens": reply["tokens"][1],
        }
    return made
