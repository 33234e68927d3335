"""Sandboxes and episodes on a Ray cluster. Needs `ray`, and this package on every node.

    ray start --head --resources '{"sandbox": 16}'      # on each node: how many sandboxes it may have at once

    from llm_in_sandbox.ray import RemoteSandbox, episode

    sandbox = RemoteSandbox.remote(memory="512M")
    result = ray.get(sandbox.run.remote("echo $((6 * 7))"))
    trajectories = ray.get([episode.remote(task, "Qwen/Qwen3-8B", base_url="http://head:8000/v1") for task in tasks])

Each takes one of the resource `sandbox`, and Ray spreads them over the nodes. A sandbox ends with the process of its
actor or task, and so with its node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._agent import Files
from ._command import CommandResult, Entry
from ._model import Model
from ._sandbox import Sandbox
from .agent import Agent
from .errors import InfrastructureError
from .trajectory import Trajectory

if TYPE_CHECKING:
    # Where types are checked, Ray is not installed.
    def _remote(**options: Any) -> Any: ...
    def _node() -> str: ...
else:
    import ray as _ray

    _remote = _ray.remote

    def _node() -> str:
        return _ray.get_runtime_context().get_node_id()


__all__ = ["RESOURCE", "RemoteSandbox", "episode"]

#: `list` is a method of the actor.
_List = list
#: The resource of which nodes have as many as they may have sandboxes.
RESOURCE = "sandbox"


class _Actor:
    """A sandbox in a process of its own, somewhere in the cluster. Arguments and methods are those of `Sandbox`.

    It has no second life: if its node dies, calls raise Ray's `ActorDiedError`. `.options(...)` chooses otherwise.
    """

    def __init__(self, image: str = "host", **options: Any) -> None:
        self._sandbox = Sandbox(image, **options)

    def where(self) -> tuple[str, str]:
        """The id of the node, and that of the sandbox."""
        return _node(), self._sandbox.id

    def run(self, argv: _List[str] | str, **options: Any) -> CommandResult:
        """Runs a program, as `Sandbox.run` does."""
        return self._sandbox.run(argv, **options)

    def shell(self, command: str, **options: Any) -> CommandResult:
        """Evaluates a command in the shell that stays alive, as `Sandbox.shell` does."""
        return self._sandbox.shell(command, **options)

    def read(self, path: str) -> bytes:
        """Reads a file."""
        return self._sandbox.read(path)

    def write(self, path: str, data: bytes | str, mode: int | None = None) -> None:
        """Writes a file."""
        self._sandbox.write(path, data, mode)

    def list(self, path: str = ".") -> _List[Entry]:
        """Lists a directory."""
        return self._sandbox.list(path)

    def run_agent(
        self, task: str, model: Model | None = None, files: Files | None = None, **options: Any
    ) -> Trajectory:
        """Runs an episode in this sandbox. `options` are arguments of `Agent`."""
        return Agent(model, **options).run(task, files, self._sandbox)

    def close(self) -> None:
        """Removes the sandbox. The actor stays until it is out of scope or killed."""
        self._sandbox.close()


def _episode(
    task: str, model: Model | None = None, files: Files | None = None, **options: Any
) -> Trajectory:
    """Runs an episode in a sandbox of its own. `options` are arguments of `Agent`.

    A failure of the machine or of its node is tried again, up to three times, where there is room; then `ray.get` raises
    Ray's error, which is an `InfrastructureError` too if that was the cause.
    """
    return Agent(model, **options).run(task, files)


#: The actor class. An idle sandbox takes no processor, so only the resource limits how many there are.
RemoteSandbox = _remote(
    num_cpus=0, resources={RESOURCE: 1}, scheduling_strategy="SPREAD", max_restarts=0
)(_Actor)
#: The task.
episode = _remote(
    num_cpus=0,
    resources={RESOURCE: 1},
    scheduling_strategy="SPREAD",
    max_retries=3,
    retry_exceptions=[InfrastructureError],
)(_episode)
