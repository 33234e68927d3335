"""The environment of Harbor, through its command line. Needs Python 3.12."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import EXAMPLES, need

need("harbor")

TASK = EXAMPLES / "harbor_tasks/count-words"

#: Its sandboxes die when Harbor wants to run something in them.
KILLED = f"""
import sys
sys.path[:0] = {[str(directory) for directory in Path(__file__).parents[:2]]!r}
from helpers import kill_sandboxes
from llm_in_sandbox.harbor import Environment

class Killed(Environment):
    async def upload_dir(self, source_dir, target_dir):
        if target_dir == "/solution":
            kill_sandboxes()
        await super().upload_dir(source_dir, target_dir)
"""


def run(tmp_path: Path, agent: str, environment: str = "llm_in_sandbox.harbor:Environment", *more: str) -> dict:
    """Runs one trial, and returns its result."""
    harbor = Path(sys.executable).parent / "harbor"
    arguments = ["run", "-p", TASK, "-e", environment, "-a", agent, "--jobs-dir", tmp_path / "jobs", *more]
    done = subprocess.run(
        [harbor, *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "HARBOR_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    results = list((tmp_path / "jobs").glob("*/*/result.json"))
    assert len(results) == 1, done.stdout + done.stderr
    return json.loads(results[0].read_text())


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_the_solution_scores_1_and_nothing_scores_0(tmp_path: Path, agent: str, reward: float) -> None:
    result = run(tmp_path, agent)
    assert result["exception_info"] is None
    assert result["verifier_result"]["rewards"] == {"reward": reward}


def test_a_dead_sandbox_is_an_exception_of_the_trial_and_no_reward(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    result = run(tmp_path, "oracle", "killed:Killed")
    assert result["exception_info"]["exception_type"] in ("SandboxGone", "InfrastructureError"), result["exception_info"]
    assert not (result["verifier_result"] or {}).get("rewards")


def test_a_missing_image_is_a_failed_build(tmp_path: Path) -> None:
    result = run(tmp_path, "oracle", "llm_in_sandbox.harbor:Environment", "--ek", "image=no-such-image")
    assert result["exception_info"]["exception_type"] == "SandboxBuildFailedError"
    assert "no-such-image" in result["exception_info"]["exception_message"]
    assert not (result["verifier_result"] or {}).get("rewards")
