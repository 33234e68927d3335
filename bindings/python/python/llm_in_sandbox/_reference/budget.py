"""Shrinks the output limit of a request that did not fit into the model's context, from the server's error."""

from __future__ import annotations

import re

__all__ = ["smaller_limit", "too_many_tokens"]

#: A response gets at least this many tokens; below that the request fails.
_LEAST = 8192
#: Tokens kept free beside prompt and response.
_SPARE = 100

_CONTEXT = re.compile(r"(?:maximum|context)[^\d]*(\d+)\s*tokens", re.IGNORECASE)
_PROMPT = re.compile(
    r"(\d+)\s*tokens?\s+(?:from\s+(?:the\s+)?(?:input|messages?)|in\s+(?:the\s+)?(?:input|prompt|messages?))",
    re.IGNORECASE,
)


def too_many_tokens(error: str) -> bool:
    """Whether the error says that a token limit was exceeded."""
    error = error.lower()
    return "token" in error and any(word in error for word in ("exceed", "limit", "maximum"))


def smaller_limit(error: str, limit: int) -> int | None:
    """The limit to try next, or `None` where no smaller one helps."""
    context, prompt = _CONTEXT.search(error), _PROMPT.search(error)
    if context and prompt:
        left = int(context.group(1)) - int(prompt.group(1)) - _SPARE
        return left if _LEAST <= left < limit else None
    return max(limit // 2, _LEAST) if limit > _LEAST else None
