"""The same classes over a Docker daemon: `DOCKER_HOST` is its address, `LIS_TEST_IMAGE` an image it has."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from conftest import missing

import llm_in_sandbox as lis
from llm_in_sandbox import Agent, AsyncSandbox, DockerRuntime, Sandbox, SandboxPool

IMAGE = os.environ.get("LIS_TEST_IMAGE", "")


@pytest.fixture(autouse=True)
def daemon() -> None:
    if not (IMAGE and os.environ.get("DOCKER_HOST")):
        missing("docker", "DOCKER_HOST or LIS_TEST_IMAGE is not set")


def test_a_container_is_a_sandbox(tmp_path: Path) -> None:
    with Sandbox(IMAGE, runtime="docker", memory="256M", env={"A": "b"}) as sandbox:
        assert sandbox.protection["runtime"] == "docker"
        assert sandbox.run("echo $A; pwd").stdout == "b\n/testbed\n"
        sandbox.shell("cd /tmp; x=1")
        assert sandbox.shell("echo $x $PWD").stdout == "1 /tmp\n"
        assert sandbox.run("sleep 60", timeout=0.5).timed_out
        sandbox.write("a/b.txt", "text", mode=0o600)
        assert sandbox.read_text("a/b.txt") == "text"
        assert [(entry.name, entry.mode) for entry in sandbox.list("a")] == [("b.txt", 0o600)]
        sandbox.download("a", tmp_path / "a")
        assert sandbox.upload(tmp_path / "a", "c").files == 1
        with sandbox.fork() as other:
            assert other.read("c/b.txt") == b"text"
        with pytest.raises(lis.PathNotFound):
            sandbox.read("missing")
        with pytest.raises(lis.UsageError, match="cannot be saved"):
            sandbox.snapshot("not a name")
        with pytest.raises(lis.SandboxUnavailable, match="native runtime only"):
            sandbox.expose(80)
    with pytest.raises(lis.SandboxClosed):
        sandbox.run("true")


def test_containers_for_asyncio_and_in_pools() -> None:
    async def main() -> str:
        async with await AsyncSandbox.create(IMAGE, runtime="docker") as sandbox:
            return (await sandbox.run("echo 1")).stdout

    assert asyncio.run(main()) == "1\n"
    with SandboxPool(1, IMAGE, runtime="docker") as pool, pool.take() as sandbox:
        assert sandbox.run("echo 2").stdout == "2\n"


def test_an_agent_in_a_container() -> None:
    def model(messages: list[dict[str, object]], tools: list[dict[str, object]]) -> object:
        name = "execute_bash" if messages[-1]["role"] == "user" else "submit"
        arguments = {"command": "echo 42 > output/answer.txt"} if name == "execute_bash" else {}
        function = {"name": name, "arguments": arguments}
        return {"content": "", "tool_calls": [{"id": "1", "function": function}]}

    trajectory = Agent(model, sandbox={"image": IMAGE, "runtime": "docker"}).run("x")
    assert (trajectory.outcome, trajectory.answer) == ("submitted", "42")


def test_wrong_daemons_and_images() -> None:
    with pytest.raises(lis.ImageNotFound, match="no-such-image"):
        Sandbox("no-such-image", runtime="docker")
    with pytest.raises(lis.SandboxUnavailable, match="/nowhere.sock"):
        Sandbox(IMAGE, runtime="docker", docker_host="unix:///nowhere.sock")
    with pytest.raises(lis.SandboxError, match="image"):
        Sandbox(runtime="docker")


def test_the_reference_class_by_argument(tmp_path: Path) -> None:
    runtime = DockerRuntime(docker_image=IMAGE, repo_path="/work", logger=False, runtime="docker", mem_limit="256m")
    try:
        assert runtime.run("pwd; ls -d input output") == ("/work\ninput\noutput\n", "0")
        assert runtime.demux_run("echo a; echo b >&2; exit 3") == ("a\n", "b\n", "Error: Exit code 3")
        assert runtime.run("sleep 9", timeout=1) == ("The command took too long to execute (>1s)", "-1")
        (tmp_path / "in").mkdir()
        (tmp_path / "in/x").write_text("1")
        runtime.copy_dir_to_container(str(tmp_path / "in"), "/work/input")
        runtime.run("cp input/x output/y")
        runtime.copy_from_container("/work/output", str(tmp_path / "out"))
        assert (tmp_path / "out/y").read_text() == "1"
        assert runtime.container is not None and runtime.container.sandbox.protection["runtime"] == "docker"
    finally:
        runtime.close()
    with pytest.raises(lis.ImageNotFound):
        DockerRuntime(docker_image="no-such-image", runtime="docker", logger=False)
