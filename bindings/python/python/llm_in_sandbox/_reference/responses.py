"""Chat completions as objects with attributes, the form in which the reference's code reads them."""

from __future__ import annotations

from typing import Any

from .json_types import is_array, is_object

__all__ = ["Record", "record"]


class Record:
    """A JSON object whose fields are attributes; an absent field is `None`."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = {name: record(value) for name, value in fields.items()}

    def __getattr__(self, name: str) -> Any:
        # Methods that pickle, copy and notebooks look for must stay absent.
        if name.startswith("_"):
            raise AttributeError(name)
        return self._fields.get(name)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The field, or the default where it is absent."""
        return self._fields.get(name, default)

    def model_dump(self, exclude_none: bool = False) -> dict[str, Any]:
        """The object as a dictionary."""
        plain = {name: _plain(value, exclude_none) for name, value in self._fields.items()}
        return {name: value for name, value in plain.items() if not (exclude_none and value is None)}

    def to_dict(self) -> dict[str, Any]:
        """The object as a dictionary."""
        return self.model_dump()

    def __repr__(self) -> str:
        return f"Record({self.model_dump()!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]


def record(value: Any) -> Any:
    """A JSON value with its objects as records."""
    if is_object(value):
        return Record(value)
    if is_array(value):
        return [record(item) for item in value]
    return value


def _plain(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, Record):
        return value.model_dump(exclude_none)
    if is_array(value):
        return [_plain(item, exclude_none) for item in value]
    return value
