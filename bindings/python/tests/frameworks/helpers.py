"""What the tests of framework adapters share. The conftest of the directory above applies here too."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[4] / "examples/python"
sys.path.insert(0, str(EXAMPLES))
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def need(*modules: str) -> None:
    """Skips the tests of a module where a framework is missing; fails where `LIS_REQUIRE` names `frameworks`."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if "frameworks" in os.environ.get("LIS_REQUIRE", "").split(","):
        raise RuntimeError(f"{', '.join(missing)} not installed, and LIS_REQUIRE names frameworks")
    pytest.skip(f"skip: {', '.join(missing)} not installed", allow_module_level=True)


def kill_sandboxes() -> None:
    """Ends all sandboxes of this process from outside, as a crash of the machine's runtime would: kills the spawner."""
    spawners = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            for child in file.read().split():
                try:
                    program = os.readlink(f"/proc/{child}/exe")
                except OSError:
                    continue
                if os.path.basename(program.removesuffix(" (deleted)")) == "llm-in-sandbox":
                    spawners.append(int(child))
    assert spawners, "there is no spawner"
    for spawner in spawners:
        os.kill(spawner, signal.SIGKILL)
    # Until its sandboxes have followed it.
    time.sleep(0.3)
