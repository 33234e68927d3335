"""Tells objects and arrays of JSON apart, in a way that type checkers follow."""

from __future__ import annotations

from typing import Any, TypeGuard

__all__ = ["is_array", "is_object"]


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether it is an array."""
    return isinstance(value, list)
