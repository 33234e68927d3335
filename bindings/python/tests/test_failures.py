"""Failures of the machine while an episode runs: exceptions with the trajectory so far, never results."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import children, kill_sandboxes, missing, spawners

import llm_in_sandbox as lis
from llm_in_sandbox import Agent, Sandbox, SandboxPool, _native
from llm_in_sandbox._session import Session
from llm_in_sandbox.trl import SandboxEnvironment

ANSWER = "echo 42 > output/answer.txt"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}


def answering(before_submission: Callable[[], object]) -> Callable[..., Any]:
    """A model that answers, and lets something happen before it submits."""

    def model(messages: list[Any], tools: list[Any]) -> Any:
        if messages[-1]["role"] == "user":
            return call("execute_bash", command=ANSWER)
        before_submission()
        return call("submit")

    return model


def check_lost(failure: lis.InfrastructureError, turns: int) -> None:
    assert not isinstance(failure, lis.ModelError)
    trajectory = failure.trajectory
    assert trajectory is not None and trajectory.answer is None
    assert trajectory.outcome == "infrastructure" and "not collected" in str(trajectory.cause)
    assert trajectory.usage["turns"] == turns and trajectory.events[-1]["kind"] == "ended"


def test_files_that_are_lost_with_the_sandbox_are_a_failure() -> None:
    with pytest.raises(lis.InfrastructureError, match="files were not collected") as caught:
        Agent(answering(kill_sandboxes)).run("x")
    check_lost(caught.value, 2)
    assert len(caught.value.trajectory.steps) == 2  # type: ignore[union-attr]


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary directories on a disk with little space."""
    if os.geteuid() != 0:
        missing("root", "mounting a disk needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_files_that_do_not_fit_on_the_disk_are_a_failure(sandbox: Sandbox, small_disk: Path) -> None:
    def write() -> None:
        sandbox.run("head -c 1M /dev/urandom > output/large", check=True)

    with pytest.raises(lis.InfrastructureError, match="No space left") as caught:
        Agent(answering(write)).run("x", sandbox=sandbox)
    check_lost(caught.value, 2)
    assert os.listdir(small_disk) == []


def test_an_output_directory_that_the_model_removed_is_its_own_doing(sandbox: Sandbox) -> None:
    trajectory = Agent(answering(lambda: sandbox.run("rm -rf output", check=True))).run("x", sandbox=sandbox)
    assert (trajectory.outcome, trajectory.answer, trajectory.files) == ("submitted", None, {})


@pytest.mark.parametrize("end", [lambda session: session.step(call("submit")), Session.finish])
def test_a_session_without_its_files_has_failed(end: Callable[[Session], object]) -> None:
    with Session("x") as session:
        session.step(call("execute_bash", command=ANSWER))
        kill_sandboxes()
        with pytest.raises(lis.InfrastructureError, match="files were not collected") as caught:
            end(session)
    assert caught.value.trajectory is not None
    assert caught.value.trajectory.outcome == "infrastructure"


@pytest.mark.parametrize("submits", [True, False])
def test_a_rollout_of_trl_without_its_files_has_no_reward(submits: bool) -> None:
    environment = SandboxEnvironment(lambda row, answer: 0.0)
    environment.reset()
    environment.execute_bash(ANSWER)
    kill_sandboxes()
    if submits:
        environment.submit()
    assert environment.get_reward() is None and environment.failure is not None


def test_a_pool_recovers_when_its_runtime_has_ended() -> None:
    with SandboxPool(3) as pool:
        with pool.take() as sandbox:
            assert sandbox.run("true").ok
        deadline = time.monotonic() + 20
        while sum(len(children(spawner)) for spawner in spawners()) < 3:
            assert time.monotonic() < deadline, "the pool does not fill"
            time.sleep(0.01)
        for _ in range(2):
            kill_sandboxes()
            for _ in range(6):
                with pool.take() as sandbox:
                    assert sandbox.run("echo alive").stdout == "alive\n"


def test_the_next_item_of_an_episode_that_is_gone_is_an_exception(sandbox: Sandbox) -> None:
    session = Session("x", within=sandbox)
    episode = session._episode
    assert isinstance(episode, _native.EpisodeHandle)
    episode.stop().wait()
    with pytest.raises(lis.InfrastructureError, match="ended without a result"):
        episode.next().wait()
    session.close()
