"""Translates arguments of Docker's `containers.run` into those of a sandbox."""

from __future__ import annotations

import re
import warnings
from typing import Any

__all__ = ["sandbox_arguments"]

#: Arguments of a sandbox that are passed on unchanged.
_OURS = ("memory", "cpus", "disk", "processes", "docker_host")
#: Limits unless others are given: containers have none by default. That on processes only stops fork bombs.
_LIMITS = {"memory": "unlimited", "cpus": "unlimited", "disk": "unlimited", "processes": 8192}
#: Arguments that change nothing that a command can see here.
_WITHOUT_EFFECT = {
    "auto_remove",
    "detach",
    "init",
    "labels",
    "log_config",
    "platform",
    "remove",
    "restart_policy",
    "stdin_open",
    "tty",
}
#: Arguments whose absence would break commands, and what to do instead.
_INSTEAD = {
    "volumes": "copy files with copy_dir_to_container and copy_from_container",
    "mounts": "copy files with copy_dir_to_container and copy_from_container",
    "user": "commands run as the sandbox's root",
    "device_requests": "sandboxes have no devices",
    "devices": "sandboxes have no devices",
    "entrypoint": "start the program with run",
    "ports": "use Sandbox.expose",
}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)


def sandbox_arguments(docker: dict[str, Any], runtime: str) -> dict[str, Any]:
    """The arguments of a sandbox. Raises `ValueError` for what cannot be had, and warns of what is ignored.

    Environment variables are not among them; the caller adds its own.
    """
    rest = {name: value for name, value in docker.items() if name not in _WITHOUT_EFFECT and value is not None}
    made: dict[str, Any] = _LIMITS | {name: rest.pop(name) for name in _OURS if name in rest}
    made["network"] = _network(rest, runtime)
    rest.pop("environment", None)
    if "mem_limit" in rest:
        made["memory"] = _bytes("mem_limit", rest.pop("mem_limit"))
    if "nano_cpus" in rest:
        made["cpus"] = rest.pop("nano_cpus") / 1e9
    if "cpu_quota" in rest:
        made["cpus"] = rest.pop("cpu_quota") / rest.pop("cpu_period", 100_000)
    if rest.get("pids_limit", 0) > 0:
        made["processes"] = rest.pop("pids_limit")
    if "size" in (rest.get("storage_opt") or {}):
        made["disk"] = _bytes("storage_opt", rest.pop("storage_opt")["size"])
    for name in rest:
        if name in _INSTEAD:
            raise ValueError(f"`{name}` is not supported: {_INSTEAD[name]}")
    if rest:
        names = ", ".join(f"`{name}`" for name in sorted(rest))
        warnings.warn(f"DockerRuntime ignores {names}: sandboxes have no such setting", stacklevel=4)
    return made


def _network(rest: dict[str, Any], runtime: str) -> Any:
    """Public addresses unless something else is asked for: containers of the reference have a network, too."""
    reachable = "full" if runtime == "docker" else "internet"
    network = rest.pop("network", None) or rest.pop("network_mode", None) or "bridge"
    if rest.pop("network_disabled", False):
        return "none"
    return {"bridge": reachable, "default": reachable, "host": "full"}.get(network, network)


def _bytes(name: str, value: Any) -> int:
    if isinstance(value, (int, float)):
        return int(value)
    size = _SIZE.fullmatch(str(value).strip())
    if size is None:
        raise ValueError(f"`{name}`: {value!r} is not a size such as 512m")
    return int(float(size.group(1)) * _UNITS[size.group(2).lower()])
