"""Sandboxes of the tests keep their state in a directory of their own."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_home = tempfile.TemporaryDirectory(prefix="lis-python-tests-")
os.environ["LLM_IN_SANDBOX_HOME"] = _home.name
for _name in ("LLM_NAME", "LLM_BASE_URL", "LLM_API_KEY"):
    os.environ.pop(_name, None)

from llm_in_sandbox import Sandbox  # noqa: E402


def missing(capability: str, reason: str) -> None:
    """Skips a test on a machine without a capability, and fails it where `LIS_REQUIRE` names that."""
    if capability in os.environ.get("LIS_REQUIRE", "").split(","):
        pytest.fail(f"LIS_REQUIRE names {capability}, but {reason}")
    pytest.skip(f"skip: {reason}")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Sandbox]:
    """For tests that leave no trace."""
    with Sandbox() as made:
        yield made


class Script:
    """A Python program in a process of its own: its source, or its file."""

    def __init__(self, program: str | Path, *words: str, **variables: str) -> None:
        source = [str(program)] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
        self.process = subprocess.Popen(
            [sys.executable, *source, *words],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self, timeout: float = 30) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@pytest.fixture
def script() -> Iterator[Callable[[str], Script]]:
    made: list[Script] = []

    def start(source: str) -> Script:
        made.append(Script(source))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


def children(pid: int | str) -> list[int]:
    """The child processes of a process."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def spawners() -> list[int]:
    """The processes of this interpreter that create its sandboxes, of which each is a child of one."""
    found = []
    for child in children("self"):
        try:
            program = os.readlink(f"/proc/{child}/exe")
        except OSError:
            continue
        if os.path.basename(program.removesuffix(" (deleted)")) == "llm-in-sandbox":
            found.append(child)
    assert found, "there is no spawner"
    return found


def kill(pids: list[int], timeout: float = 10) -> None:
    """Kills processes, and waits until they are gone or have no memory left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


def kill_sandboxes() -> None:
    """Ends all sandboxes of this process from outside, as a crash of the runtime would: kills the spawner."""
    found = spawners()
    sandboxes = [child for spawner in found for child in children(spawner)]
    kill(found)
    deadline = time.monotonic() + 10
    # They follow it.
    while any(os.path.exists(f"/proc/{pid}") for pid in sandboxes) and time.monotonic() < deadline:
        time.sleep(0.01)


def held() -> set[str]:
    """The sandboxes and temporary directories of this process: what an operation that was cancelled must not add to."""
    sandboxes = {f"process {child}" for spawner in spawners() for child in children(spawner)}
    prefix = os.path.join(tempfile.gettempdir(), "llm-in-sandbox-work-")
    return sandboxes | set(glob.glob(f"{prefix}*"))


def added_to(before: set[str], timeout: float = 20) -> set[str]:
    """What is held besides, after some time."""
    deadline = time.monotonic() + timeout
    while (added := held() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return added


def processes_of(sandbox_id: str) -> list[str]:
    """The processes of this machine whose command line or directories name a sandbox."""
    found = []
    run = sandbox_id.rsplit("-", 1)[0]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cgroup", errors="replace") as file:
                if run in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def state_of(sandbox_id: str) -> list[str]:
    """What a run of sandboxes has left below the directories for state."""
    run = sandbox_id.rsplit("-", 1)[0]
    found = []
    for base in [_home.name, *_other_states()]:
        directory = os.path.join(base, "run")
        if os.path.isdir(directory):
            found += [name for name in os.listdir(directory) if name.startswith(run)]
    return found


def _other_states() -> list[str]:
    places = os.path.join(_home.name, "places")
    lines: list[str] = []
    if os.path.isdir(places):
        for name in os.listdir(places):
            with open(os.path.join(places, name)) as file:
                lines += file.read().splitlines()
    return lines


def ended(pid: int | str, timeout: float = 10) -> bool:
    """Whether a process ends soon; one that nobody has waited for has ended."""
    deadline = time.monotonic() + timeout
    while os.path.exists(f"/proc/{pid}/exe"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(sandbox_id: str, timeout: float = 10) -> bool:
    """Whether nothing of a run is left, soon."""
    deadline = time.monotonic() + timeout
    while processes_of(sandbox_id) or state_of(sandbox_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
