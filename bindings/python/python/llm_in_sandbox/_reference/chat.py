"""Chat completions over HTTP with the standard library: OpenAI's protocol, and Anthropic's translated to it.

One request per call and no retries; the caller decides about those. Blocking, so Ctrl-C interrupts it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from . import anthropic
from .json_types import is_object
from .responses import Record

__all__ = ["ChatError", "ChatServer", "completion", "server"]

_OPENAI_URL = "https://api.openai.com/v1"
_ANTHROPIC_URL = "https://api.anthropic.com"
#: Characters of a server's error that are shown.
_SHOWN = 2000


class ChatError(RuntimeError):
    """A request that the server refused, or that did not reach it. `status` is 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return (ChatError, (str(self), self.status, self.retry_after))


@dataclass(frozen=True)
class ChatServer:
    """A model at a server."""

    model: str
    url: str
    headers: dict[str, str] = field(repr=False)
    anthropic: bool = False


def server(llm_name: str, base_url: str | None) -> ChatServer:
    """The server of a model's name, which may start with a provider: `openai/`, `hosted_vllm/` or `anthropic/`.

    Other names are OpenAI's protocol too, except Claude's. Keys are read from the providers' usual variables.
    """
    provider, slash, name = llm_name.partition("/")
    if not slash or provider not in ("openai", "hosted_vllm", "anthropic"):
        if provider == "azure":
            raise ValueError("`azure/` is not supported: use `openai/` with the URL of an OpenAI-compatible endpoint")
        provider, name = ("anthropic" if llm_name.startswith("claude") else "openai"), llm_name
    if provider == "anthropic":
        base = (base_url or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC_URL).rstrip("/")
        base = base if base.endswith("/v1") else f"{base}/v1"
        key = os.environ.get("ANTHROPIC_API_KEY", "")
        headers = {"x-api-key": key, "anthropic-version": anthropic.VERSION}
        return ChatServer(name, f"{base}/messages", headers, anthropic=True)
    base = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or _OPENAI_URL
    variable = "HOSTED_VLLM_API_KEY" if provider == "hosted_vllm" else "OPENAI_API_KEY"
    key = os.environ.get(variable) or os.environ.get("LLM_API_KEY") or "dummy"
    return ChatServer(name, base.rstrip("/") + "/chat/completions", {"authorization": f"Bearer {key}"})


def completion(
    target: ChatServer,
    messages: list[dict[str, Any]],
    *,
    max_tokens: int,
    tools: list[dict[str, Any]] | None = None,
    temperature: float | None = None,
    extra_body: dict[str, Any] | None = None,
    timeout: float = 1200,
) -> Record:
    """Asks for one response and returns it in OpenAI's form. Raises `ChatError`."""
    body: dict[str, Any] = {"model": target.model, "messages": messages, "max_tokens": max_tokens}
    if tools:
        body["tools"] = tools
    if temperature is not None:
        body["temperature"] = temperature
    if target.anthropic:
        answer = anthropic.to_openai(_post(target, {**anthropic.request(body), **(extra_body or {})}, timeout))
    else:
        body.update(extra_body or {})
        try:
            answer = _post(target, body, timeout)
        except ChatError as error:
            # OpenAI's reasoning models know the limit by another name, and no temperature.
            if error.status != 400 or "max_completion_tokens" not in str(error):
                raise
            body["max_completion_tokens"] = body.pop("max_tokens", max_tokens)
            body.pop("temperature", None)
            answer = _post(target, body, timeout)
    if not is_object(answer) or not answer.get("choices"):
        raise ChatError(f"unexpected response of {target.url}: {json.dumps(answer)[:_SHOWN]}")
    return Record(answer)


def _post(target: ChatServer, body: dict[str, Any], timeout: float) -> Any:
    headers = {"content-type": "application/json", **target.headers}
    request = urllib.request.Request(target.url, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise _refusal(target.url, error) from None
    except (OSError, ValueError) as error:
        # A connection that failed, a timeout, or an answer that is not JSON.
        raise ChatError(f"request to {target.url} failed: {error}") from error


def _refusal(url: str, error: urllib.error.HTTPError) -> ChatError:
    kinds = {401: "AuthenticationError: ", 429: "RateLimitError: "}
    with error:
        text = error.read().decode("utf-8", errors="replace")[:_SHOWN]
    try:
        wait = float(error.headers.get("retry-after") or "")
    except ValueError:
        wait = None
    return ChatError(f"{kinds.get(error.code, '')}{url} answered {error.code}: {text}", error.code, wait)
