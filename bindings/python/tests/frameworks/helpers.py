"""What the tests of framework adapters share. The conftest of the directory above applies here too."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from conftest import kill_sandboxes

__all__ = ["EXAMPLES", "kill_sandboxes", "need"]

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
