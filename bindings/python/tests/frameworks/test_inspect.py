"""The sandbox provider of Inspect."""

from __future__ import annotations

import asyncio
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from helpers import kill_sandboxes, need

need("inspect_ai")

import inspect_ai.util._sandbox.self_check as checks  # noqa: E402
import inspect_task  # noqa: E402
from inspect_ai import Task  # noqa: E402
from inspect_ai.scorer import match  # noqa: E402
from inspect_ai.solver import generate, solver, use_tools  # noqa: E402
from inspect_ai.tool import bash  # noqa: E402

from llm_in_sandbox.inspect_ai import InspectSandbox, SandboxConfig  # noqa: E402

#: Commands run as root, for whom permissions do not count, and there is no other user.
ROOT_ONLY = {
    "test_exec_as_user",
    "test_read_file_not_allowed",
    "test_write_binary_file_without_permissions",
    "test_write_text_file_without_permissions",
}
#: They wait for seconds; two of them are enough.
SLOW = {"test_exec_timeout_kills_child_processes"}
CHECKS = [name for name in dir(checks) if name.startswith("test_")]


def test_the_example_is_scored_in_a_provider_that_inspect_finds_itself(tmp_path: Path) -> None:
    assert [point.value for point in entry_points(group="inspect_ai", name="llm_in_sandbox")] == ["llm_in_sandbox.inspect_ai"]
    log = inspect_task.main(str(tmp_path))
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert log.samples[0].scores["answer_file"].answer == "3"


@solver
def disaster():
    async def solve(state, generate):
        kill_sandboxes()
        return state

    return solve


def test_a_dead_sandbox_is_an_error_of_the_sample_and_no_score(tmp_path: Path) -> None:
    def tasks():
        # The scorer reads the conversation only: it would give an incorrect answer, a score of 0.
        return Task(
            dataset=inspect_task.words().dataset,
            solver=[use_tools(bash(timeout=30)), disaster(), generate()],
            scorer=match(),
            sandbox="llm_in_sandbox",
        )

    log = inspect_task.main(str(tmp_path), tasks, fail_on_error=False)
    sample = log.samples[0]
    assert sample.error is not None and "SandboxGone" in sample.error.traceback
    assert not sample.scores


def test_a_wrong_image_is_an_error_of_the_sample(tmp_path: Path) -> None:
    def tasks():
        return Task(dataset=inspect_task.words().dataset, scorer=match(), sandbox=("llm_in_sandbox", "no-such-image"))

    log = inspect_task.main(str(tmp_path), tasks, fail_on_error=False)
    assert log.samples[0].error is not None and "no-such-image" in log.samples[0].error.message


def test_the_configuration_is_read_back() -> None:
    config = SandboxConfig(memory="512M", network=["example.com"])
    assert InspectSandbox.config_deserialize(config.model_dump()) == config
    with pytest.raises(ValueError):
        SandboxConfig(memroy="512M")


def test_inspects_own_checks_of_providers() -> None:
    async def one(name: str) -> str | None:
        made = await InspectSandbox.sample_init("checks", None, {})
        try:
            await getattr(checks, name)(made["default"])
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
        finally:
            await InspectSandbox.sample_cleanup("checks", None, made, False)
        return None

    async def main() -> list[str]:
        names = [name for name in CHECKS if name not in ROOT_ONLY | SLOW]
        assert len(names) >= 35
        found = await asyncio.gather(*(one(name) for name in names))
        return [failure for failure in found if failure is not None]

    assert asyncio.run(main()) == []
