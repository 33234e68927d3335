"""Which model: a server, the embedded model, or a Python function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ._arguments import mapping
from .errors import UsageError

__all__ = ["ModelFunction", "ModelSettings"]

#: A function of the messages and the tools, in the formats of OpenAI's chat completions, that returns the next message:
#: a text, a message, or a whole response. It may be a coroutine function.
ModelFunction = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Any]
Model = Union[str, ModelFunction]


@dataclass(frozen=True)
class ModelSettings:
    """A model, and how it is reached."""

    name: str
    function: ModelFunction | None = field(default=None, repr=False)
    base_url: str | None = None
    """The address of its server; `None` for a function, and for the embedded model until it is started."""
    api_key: str | None = field(default=None, repr=False)
    provider: str = "openai"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retries: int = 5
    silence: float | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded model."""
        return self.function is None and self.base_url is None

    def request(self, base_url: str | None = None, api_key: str | None = None) -> dict[str, Any]:
        """The model as `_native` takes it."""
        if self.function is not None:
            return {"kind": "callable", "name": self.name}
        return {
            "kind": "server",
            "name": self.name,
            "base_url": base_url or self.base_url,
            "provider": self.provider,
            "api_key": api_key or self.api_key,
            "headers": list(self.headers),
            "extra_body": dict(self.extra_body),
            "retries": self.retries,
            "silence": self.silence,
        }


def settings(
    model: Model | None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    provider: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    retries: int = 5,
    silence: float | None = None,
) -> ModelSettings:
    """Finds out which model is meant. What is not given comes from the variables of the command line: `LLM_NAME`,
    `LLM_BASE_URL`, `LLM_API_KEY`, `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`."""
    if callable(model):
        name = getattr(model, "__name__", type(model).__name__)
        if base_url is not None:
            raise UsageError("a function has no base_url")
        return ModelSettings(name=f"python:{name}", function=model)
    if model is not None and not isinstance(model, str):
        raise TypeError(f"argument `model`: expected a name or a function, not {type(model).__name__}")
    name = model or os.environ.get("LLM_NAME") or "local"
    local = name == "local" or name.startswith("local:")
    base_url = None if local else base_url or os.environ.get("LLM_BASE_URL") or None
    if base_url is None:
        return ModelSettings(name=name.removeprefix("local:"))
    if provider is None:
        provider = "anthropic" if "anthropic.com" in base_url else "openai"
    vendor = "ANTHROPIC_API_KEY" if provider == "anthropic" else "OPENAI_API_KEY"
    key = api_key or os.environ.get("LLM_API_KEY") or os.environ.get(vendor) or None
    return ModelSettings(
        name=name,
        base_url=base_url,
        api_key=key,
        provider=provider,
        headers=tuple(mapping("headers", headers).items()),
        extra_body=dict(mapping("extra_body", extra_body)),
        retries=retries,
        silence=silence,
    )
