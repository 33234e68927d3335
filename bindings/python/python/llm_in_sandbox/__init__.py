"""Sandboxes for language models, and agents that work in them.

>>> from llm_in_sandbox import Sandbox
>>> with Sandbox() as sandbox:
...     sandbox.run("echo $((6 * 7))").stdout
'42\\n'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import grade
from ._async_sandbox import AsyncSandbox
from ._benchmark import Attempt, BenchmarkResults, abenchmark
from ._command import CommandResult, CopyReport, Entry
from ._constants import CMD_TIMEOUT, DOCKER_PATH
from ._engine import find_program
from ._pool import AsyncSandboxPool, SandboxPool
from ._progress import Progress
from ._rollout import Rollout, Segment, arollout, rollout
from ._sandbox import Sandbox
from .action import Action
from .agent import Agent, AgentArgs, get_logger
from .docker_runtime import DockerRuntime
from .errors import (
    CommandError,
    ImageNotFound,
    InfrastructureError,
    ModelError,
    PathError,
    PathNotFound,
    SandboxClosed,
    SandboxError,
    SandboxGone,
    SandboxUnavailable,
    StalledError,
    UsageError,
)
from .trajectory import Trajectory, TrajectoryStep

if TYPE_CHECKING:
    from ._benchmark import benchmark
else:
    # The function, and the reference's package of this name.
    from . import benchmark

__all__ = [
    "CMD_TIMEOUT",
    "DOCKER_PATH",
    "Action",
    "Agent",
    "AgentArgs",
    "AsyncSandbox",
    "AsyncSandboxPool",
    "Attempt",
    "BenchmarkResults",
    "CommandError",
    "CommandResult",
    "CopyReport",
    "DockerRuntime",
    "Entry",
    "ImageNotFound",
    "InfrastructureError",
    "ModelError",
    "PathError",
    "PathNotFound",
    "Progress",
    "Rollout",
    "Sandbox",
    "SandboxClosed",
    "SandboxError",
    "SandboxGone",
    "SandboxPool",
    "SandboxUnavailable",
    "Segment",
    "StalledError",
    "Trajectory",
    "TrajectoryStep",
    "UsageError",
    "abenchmark",
    "arollout",
    "benchmark",
    "find_program",
    "get_logger",
    "grade",
    "rollout",
]
