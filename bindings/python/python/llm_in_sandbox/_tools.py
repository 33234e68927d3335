"""Python functions as tools of a model: their JSON schemas, and calls of them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from .errors import UsageError

__all__ = ["FunctionTool", "tool_of"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclasses.dataclass(frozen=True)
class FunctionTool:
    """A function, and its description for the model."""

    function: Callable[..., Any]
    name: str
    description: str
    parameters: dict[str, Any]
    injected: tuple[str, ...] = ()
    """The parameters that get the sandbox."""

    @property
    def spec(self) -> dict[str, Any]:
        """The tool as a model sees it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }

    def bind(self, arguments: Mapping[str, Any], sandbox: object) -> dict[str, Any]:
        """The arguments of the function.

        Raises:
            TypeError: they do not fit it; the message is for the model.
        """
        known = self.parameters["properties"]
        unknown = [name for name in arguments if name not in known]
        if unknown:
            raise TypeError(
                f"unknown argument `{unknown[0]}`; there are {', '.join(known) or 'none'}"
            )
        missing = [name for name in self.parameters["required"] if name not in arguments]
        if missing:
            raise TypeError(f"the argument `{missing[0]}` is missing")
        return {**arguments, **dict.fromkeys(self.injected, sandbox)}


def tool_of(function: Callable[..., Any]) -> FunctionTool:
    """Makes a tool of a function: its name, its docstring, and its annotations as a JSON schema.

    A parameter with the annotation `Sandbox` or `AsyncSandbox` gets the sandbox; the model does not see it.
    """
    from ._async_sandbox import AsyncSandbox
    from ._sandbox import Sandbox

    if isinstance(function, FunctionTool):
        return function
    if not callable(function):
        raise TypeError(f"a tool is a function, not {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    if not _NAME.fullmatch(name):
        raise UsageError(f"`{name}` cannot be the name of a tool; give it one with `def`")
    summary, described = _docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    injected: list[str] = []
    target = function if inspect.isroutine(function) else type(function).__call__
    signature = inspect.signature(function).parameters
    # As written, where what they name is not known.
    hints = {name: p.annotation for name, p in signature.items() if p.annotation is not p.empty}
    try:
        hints |= typing.get_type_hints(target)
    except Exception:
        pass
    for parameter in signature.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"tool `{name}`: the parameter `{parameter.name}` is positional only")
        hint = hints.get(parameter.name, Any)
        if hint in (Sandbox, AsyncSandbox, "Sandbox", "AsyncSandbox"):
            injected.append(parameter.name)
            continue
        schema = _schema(hint)
        if parameter.name in described:
            schema["description"] = described[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required}
    return FunctionTool(function, name, summary, parameters, tuple(injected))


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of an annotation. What has none is anything."""
    simple: dict[Any, dict[str, Any]] = {
        str: {"type": "string"},
        int: {"type": "integer"},
        float: {"type": "number"},
        bool: {"type": "boolean"},
        type(None): {"type": "null"},
        list: {"type": "array"},
        dict: {"type": "object"},
    }
    try:
        if hint in simple:
            return dict(simple[hint])
    except TypeError:
        return {}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        schema = _schema(arguments[0])
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return {**schema, "description": texts[0]} if texts else schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return _schema(others[0])
        return {"anyOf": [_schema(argument) for argument in others]}
    if origin in (list, set, frozenset, Sequence, tuple) and arguments:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    return {}


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)\s*:?\s*$")
_PARAMETER = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description of a function, and of its parameters from a section `Args:`."""
    description: list[str] = []
    parameters: dict[str, str] = {}
    section = current = ""
    for line in text.splitlines():
        found = _SECTION.match(line)
        if found:
            section, current = found.group(1), ""
        elif not section:
            description.append(line)
        elif section.startswith(("Arg", "Param")):
            named = _PARAMETER.match(line)
            if named:
                current = named.group(1)
                parameters[current] = named.group(2).strip()
            elif current and line.strip():
                parameters[current] += " " + line.strip()
    return "\n".join(description).strip(), parameters


def observation(value: object) -> str:
    """What a model sees of a function's result: texts as they are, other values as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)


def failure(error: BaseException) -> str:
    """What a model sees of an exception."""
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
