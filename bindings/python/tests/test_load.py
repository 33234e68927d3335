"""Many sandboxes at once, of threads and of an event loop: none fails, and nothing is left.

`LIS_FULL=1` has the sizes of `perf.py`, as `cargo xtask python --all` does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Script, gone

PACKAGE = Path(__file__).parents[1]
FULL = os.environ.get("LIS_FULL") == "1"


@pytest.mark.parametrize("use", [f"threads{(64, 4) if FULL else (16, 2)}", f"at_once({512 if FULL else 64})"])
def test_many_at_once(script: Callable[[str], Script], use: str) -> None:
    run = script(
        f"""
        import json, sys
        sys.path.append({str(PACKAGE)!r})
        import perf
        with perf.Sandbox() as sandbox:
            run = perf.run_of(sandbox)
        *_, failed = perf.{use}
        perf.engine().shut_down()
        print(json.dumps([sandbox.id, failed, perf.left_after({{run}})]))
        """
    )
    code, out, err = run.finish(900)
    assert code == 0 and "panicked" not in err, err
    name, failed, left = json.loads(out)
    assert (failed, left) == (0, [])
    assert gone(name)


def test_what_is_left_is_seen(script: Callable[[str], Script]) -> None:
    run = script(
        f"""
        import sys
        sys.path.append({str(PACKAGE)!r})
        import perf
        with perf.Sandbox() as sandbox:
            print(len(perf.left({{perf.run_of(sandbox)}})) > 0)
        """
    )
    assert run.finish()[1] == "True\n"
