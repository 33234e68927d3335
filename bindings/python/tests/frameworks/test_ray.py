"""Sandboxes and episodes on a Ray cluster of two nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import gone, processes_of
from helpers import EXAMPLES, need

need("ray")

# Nodes start slowly where other tests run beside them.
os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
os.environ.setdefault("RAY_usage_stats_enabled", "0")
# Or it writes a token into the home directory.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
# Workers import the example.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))

import ray  # noqa: E402
import ray_cluster  # noqa: E402

from llm_in_sandbox import InfrastructureError, ModelError, Sandbox  # noqa: E402
from llm_in_sandbox.ray import RemoteSandbox, episode  # noqa: E402


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    made = ray_cluster.start()
    yield made
    ray.shutdown()
    made.shutdown()


def leaves_nothing(name: str) -> bool:
    """Whether all of a sandbox is gone. Ray kills the children of its workers too, so nobody is left to remove directories:
    the next process that creates sandboxes does."""
    deadline = time.monotonic() + 60
    while processes_of(name) and time.monotonic() < deadline:
        time.sleep(0.05)
    subprocess.run([sys.executable, "-c", "from llm_in_sandbox import Sandbox; Sandbox().close()"], check=True)
    return gone(name)


def test_sandboxes_and_episodes_spread_over_the_nodes(cluster: Any) -> None:
    outputs, places, answers = ray_cluster.main()
    assert outputs == ["0\n", "1\n", "2\n", "3\n"]
    assert answers == ["0", "1", "4", "9"]
    assert len({node for node, _ in places}) == 2 and len({name for _, name in places}) == 4


def test_an_actor_is_a_sandbox(cluster: Any) -> None:
    sandbox = RemoteSandbox.remote(memory="256M")
    ray.get(sandbox.write.remote("x", b"\xff"))
    assert ray.get(sandbox.read.remote("x")) == b"\xff"
    trajectory = ray.get(sandbox.run_agent.remote("The square of n?", ray_cluster.model, {"n": "3"}))
    assert trajectory.answer == "9"
    assert ray.get(sandbox.shell.remote("cd /tmp; pwd")).stdout == "/tmp\n"
    assert "x" in [entry.name for entry in ray.get(sandbox.list.remote("/testbed"))]
    _, name = ray.get(sandbox.where.remote())
    ray.kill(sandbox)
    assert leaves_nothing(name)


def test_failures_of_the_infrastructure_are_rays_errors_with_the_cause(cluster: Any) -> None:
    # A function of a function: workers cannot import this module.
    def broken(messages, tools):
        raise ConnectionError("the model is gone")

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(episode.options(max_retries=0).remote("task", broken))
    assert isinstance(caught.value, InfrastructureError)
    assert isinstance(caught.value.cause, ModelError) and "the model is gone" in str(caught.value)


def test_a_node_that_dies_leaves_nothing_and_its_tasks_run_elsewhere(cluster: Any, tmp_path: Path) -> None:
    # In functions, because workers cannot import this module.
    def where(sandbox: Sandbox) -> str:
        """Notes the sandbox of the episode."""
        with open(tmp_path / "episodes", "a") as file:
            file.write(sandbox.id + "\n")
        time.sleep(2)
        return "noted"

    def slow(messages, tools):
        if messages[-1]["role"] == "user":
            return {"content": "", "tool_calls": [{"function": {"name": "where", "arguments": {}}}]}
        if messages[-1]["name"] == "where":
            return ray_cluster.model([{"role": "user"}], tools)
        return ray_cluster.model(messages, tools)

    def noted() -> list[str]:
        file = tmp_path / "episodes"
        return file.read_text().split() if file.exists() else []

    victim = next(node for node in cluster.list_all_nodes() if not node.head)
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    there = RemoteSandbox.options(scheduling_strategy=here(victim.node_id, soft=False)).remote()
    node, name = ray.get(there.where.remote())
    assert node == victim.node_id and processes_of(name)
    ray.get(there.shell.remote("sleep 1000 &"))
    affinity = episode.options(scheduling_strategy=here(victim.node_id, soft=True))
    task = affinity.remote("The square of n?", slow, {"n": "4"}, tools=[where])
    deadline = time.monotonic() + 120
    while not noted():
        assert time.monotonic() < deadline, "the episode does not start"
        time.sleep(0.05)
    assert processes_of(noted()[0])
    cluster.remove_node(victim, allow_graceful=False)
    with pytest.raises(ray.exceptions.RayActorError):
        # Its processes end when they notice.
        for _ in range(300):
            ray.get(there.run.remote("true"), timeout=60)
            time.sleep(0.1)
    assert leaves_nothing(name)
    assert ray.get(task, timeout=120).answer == "16"
    # The process of the second one is kept for further tasks.
    killed, second = noted()
    assert killed != second and leaves_nothing(killed)

