"""Arguments of sandboxes and commands, checked and in the form `_native` takes."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypedDict, Union

from .errors import UsageError

__all__ = ["Network", "Path", "Size", "SandboxOptions"]

Path = Union[str, "os.PathLike[str]"]
#: Bytes, or a text such as "512M" or "unlimited".
Size = Union[int, str]
#: "none", "full", "internet", "allow=HOST,HOST" or a list of hosts.
Network = Union[str, Sequence[str]]

#: Most bytes of each output stream of a command that are kept by default.
MAX_OUTPUT = 64 << 20
#: Most bytes of a file that are read at once by default.
MAX_READ = 1 << 30


class SandboxOptions(TypedDict, total=False):
    """The arguments of `Sandbox` besides the image, for functions that pass them on."""

    env: Mapping[str, str] | None
    workdir: Path | None
    memory: Size | None
    cpus: float | None
    disk: Size | None
    processes: int | None
    network: Network
    runtime: Literal["native", "docker"]
    docker_host: str | None
    stall_timeout: float | None


def spec(image: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The specification of a sandbox. What it means is checked by `_native`, which names the argument that is wrong."""
    made: dict[str, Any] = {"image": image, **options}
    if isinstance(made.get("env"), Mapping):
        made["env"] = dict(made["env"])
    if isinstance(made.get("network"), Sequence) and not isinstance(made["network"], str):
        made["network"] = list(made["network"])
    if made.get("runtime") == "docker" and made.get("docker_host") is None:
        made["docker_host"] = os.environ.get("DOCKER_HOST") or None
    return made


def argv(command: Sequence[str] | str) -> list[str]:
    """The program and its arguments; a text is a script for bash."""
    if isinstance(command, str):
        return ["bash", "-c", command]
    if isinstance(command, (bytes, bytearray)):
        raise TypeError("a command is a text or a list of texts, not bytes")
    return list(command)


def title(command: Sequence[str] | str) -> str:
    """The command as people write it."""
    return command if isinstance(command, str) else shlex.join(command)


def data(value: bytes | bytearray | memoryview | str) -> bytes:
    """Bytes, or the text as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected bytes or str, not {type(value).__name__}")


def seconds(name: str, value: object) -> float | None:
    """A time limit, or `None`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"argument `{name}`: expected a number of seconds, not {type(value).__name__}")
    limit = float(value)
    if not math.isfinite(limit) or limit < 0:
        raise UsageError(f"argument `{name}`: {value} is not a number of seconds")
    return limit


def stdin(value: bytes | str | None) -> bytes | None:
    """The input of a program."""
    return None if value is None else data(value)


def pairs(env: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Environment variables."""
    return list(mapping("env", env).items())


def mapping(name: str, value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A mapping; an empty one for `None`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"argument `{name}`: expected a mapping, not {type(value).__name__}")
    return value
