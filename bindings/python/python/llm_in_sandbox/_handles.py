"""What the classes over handles of the extension have in common: their ends, and properties of sandboxes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from . import _arguments, _native
from ._arguments import Path

__all__ = ["Closing", "SandboxProperties", "Unpicklable"]

_Closing = TypeVar("_Closing", bound="Closing")
_Sandbox = TypeVar("_Sandbox", bound="SandboxProperties")


class Unpicklable:
    """An object that exists in one process only."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a {name} cannot be pickled: it belongs to this process; create it in the process that uses it"
        )


class Closing(Unpicklable):
    """A context manager that closes itself at its end."""

    __slots__ = ()

    def close(self) -> None:
        """Ends it. Ending it again does nothing."""
        raise NotImplementedError

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class SandboxProperties(Unpicklable):
    """A sandbox, and what is known of it without waiting."""

    __slots__ = ("__weakref__", "_handle")

    _handle: _native.SandboxHandle

    @classmethod
    def _of(cls: type[_Sandbox], handle: _native.SandboxHandle) -> _Sandbox:
        made = object.__new__(cls)
        made._handle = handle
        return made

    @property
    def id(self) -> str:
        """Its name, unique on this machine."""
        return self._handle.id

    @property
    def workdir(self) -> str:
        """The working directory of commands."""
        return str(self._handle.workdir)

    @property
    def closed(self) -> bool:
        """Whether it is closed, or belongs to the process that this one was forked from."""
        return self._handle.closed

    @property
    def protection(self) -> dict[str, Any]:
        """Which layers of protection apply, and how.

        >>> from llm_in_sandbox import Sandbox
        >>> with Sandbox() as sandbox:
        ...     layers = {layer["name"]: layer["state"] for layer in sandbox.protection["layers"]}
        >>> layers["namespaces"]
        'enforced'
        """
        report: dict[str, Any] = json.loads(self._handle.protection())
        return report

    def _running(
        self,
        argv: Sequence[str] | str,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        stdin: bytes | str | None,
        timeout: float | None,
        max_output: int,
    ) -> _native.Operation:
        """Runs a program; the arguments are those of the public methods."""
        words, variables = _arguments.argv(argv), _arguments.pairs(env)
        return self._handle.run(words, cwd, variables, _arguments.stdin(stdin), timeout, max_output)

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<{type(self).__name__} {self.id}{state}>"
