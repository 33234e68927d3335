"""The engine of this process: created at the first use, again after a fork, closed when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import sysconfig
import threading
from importlib import metadata
from pathlib import Path

from . import _native

__all__ = ["engine", "find_program"]

PROGRAM = "llm-in-sandbox"
#: Names another program, for development.
PROGRAM_VARIABLE = "LLM_IN_SANDBOX_PROGRAM"
#: Variables that say where temporary files and libraries are.
_PASSED = ("LLM_IN_SANDBOX_TMPDIR", "SLURM_TMPDIR", "TMPDIR", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH")

_current: _native.Engine | None = None
_lock = threading.Lock()


def engine() -> _native.Engine:
    """The engine of this process."""
    current = _current
    return current if current is not None else _start()


def _start() -> _native.Engine:
    global _current
    with _lock:
        if _current is None:
            program, missing = _locate()
            variables = {name: os.environ[name] for name in _PASSED if os.environ.get(name)}
            _current = _native.Engine(program, missing, str(_home()), variables)
        return _current


def _after_fork() -> None:
    # The parent's engine is not dropped but left alone: `_native` knows whose it is. Another thread may have held the
    # lock, and does not exist here.
    global _current, _lock
    _current = None
    _lock = threading.Lock()


@atexit.register
def _at_exit() -> None:
    if _current is not None:
        _current.shut_down()


os.register_at_fork(after_in_child=_after_fork)


def _home() -> Path:
    """The directory with images and state, the same as the program's."""
    home = os.environ.get("LLM_IN_SANDBOX_HOME")
    if home:
        return Path(home).absolute()
    data = os.environ.get("XDG_DATA_HOME")
    if data and os.path.isabs(data):
        return Path(data) / "llm-in-sandbox"
    return Path.home() / ".local/share/llm-in-sandbox"


def find_program() -> str:
    """The path of the program `llm-in-sandbox`, which creates the native sandboxes.

    Raises:
        SandboxUnavailable: if it is not installed.
    """
    from .errors import SandboxUnavailable

    program, missing = _locate()
    if program is None:
        raise SandboxUnavailable(missing)
    return program


def _locate() -> tuple[str | None, str]:
    """The program, or why there is none: the one of this package, or one of the same version in PATH."""
    chosen = os.environ.get(PROGRAM_VARIABLE)
    if chosen:
        found = os.path.abspath(chosen) if os.access(chosen, os.X_OK) else None
        return found, f"{PROGRAM_VARIABLE}: {chosen} is not a program"
    places = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    # `pip install --target` and `--user` put it elsewhere.
    package = Path(__file__).resolve().parent
    places += [str(package.parent / "bin"), str(package.parents[2] / "bin")]
    places.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    for place in places:
        path = os.path.join(place, PROGRAM)
        if os.path.isfile(path) and os.access(path, os.X_OK) and _is_binary(path):
            return path, ""
    refused = ""
    for place in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(place, PROGRAM)
        if not (place and os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        version = _version_of(path)
        if version == _version():
            return path, ""
        refused += f"; {path} is of version {version or 'unknown'}, not {_version()}"
    looked = ", ".join(dict.fromkeys(places))
    return None, (
        f"the program `{PROGRAM}`, a part of this package, is missing in {looked} and in PATH{refused}; "
        "reinstall the package"
    )


def _is_binary(path: str) -> bool:
    """Whether it is the program itself, and not a script of the same name."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _version() -> str:
    try:
        return metadata.version("llm-in-sandbox")
    except metadata.PackageNotFoundError:
        return "unknown"


def _version_of(path: str) -> str | None:
    """The version a program reports."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    return words[-1] if done.returncode == 0 and words else None
