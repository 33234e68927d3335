"""A taskset, a runtime, a harness and an environment of verifiers v1. Needs `verifiers`.

A package of your own exports them together, and verifiers finds them by its name (`vf-eval my_tasks`):

    from llm_in_sandbox.verifiers import SandboxEnv, SandboxHarness, SandboxTask, SandboxTaskset

    class MyTask(SandboxTask):
        def grade(self, row, answer):
            return 1.0 if answer == row["ground_truth"] else 0.0

    class MyTaskset(SandboxTaskset):
        task_class = MyTask

        def rows(self):
            yield {"id": "1", "problem_statement": "What is 6 times 7?", "ground_truth": "42"}

    __all__ = ["MyTaskset", "SandboxEnv", "SandboxHarness"]
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from . import grade as _grade
from ._arguments import MAX_READ
from ._async_sandbox import AsyncSandbox
from ._messages import Json
from .agent import Agent
from .errors import InfrastructureError, ModelError, PathError, SandboxClosed

F = TypeVar("F")
T = TypeVar("T")

if TYPE_CHECKING:
    # Where types are checked, verifiers is not installed.
    class _Config:
        def __init__(self, **fields: Any) -> None: ...

        def model_dump(self, **options: Any) -> Json: ...

    class _TaskData(_Config):
        prompt: Any

    class _TasksetConfig(_Config):
        task: Any

    class _HarnessConfig(_Config):
        pass

    class _EnvConfig(_Config):
        pass

    class _Runtime:
        env: dict[str, str]

        def __init__(self, name: str | None = None) -> None: ...
        def process_env(self, env: dict[str, str]) -> dict[str, str]: ...
        async def start(self) -> None: ...
        async def stop(self) -> None: ...

    class _SandboxError(Exception): ...

    class _AgentConfig(_Config):
        pass

    class _SubprocessConfig(_Config):
        pass

    _SubprocessInfo: Any
    _ProgramResult: Any

    def _field(**options: Any) -> Any: ...
    def _reward(function: F) -> F: ...
    def _register(runtime: Any) -> None: ...
else:
    import verifiers.v1 as _vf
    from pydantic import Field as _field
    from pydantic_config import BaseConfig as _Config
    from verifiers.v1.errors import SandboxError as _SandboxError
    from verifiers.v1.runtimes import ProgramResult as _ProgramResult
    from verifiers.v1.runtimes import Runtime as _Runtime
    from verifiers.v1.runtimes import SubprocessConfig as _SubprocessConfig
    from verifiers.v1.runtimes import SubprocessRuntimeInfo as _SubprocessInfo
    from verifiers.v1.runtimes.base import register as _register

    _AgentConfig = _vf.AgentConfig
    _EnvConfig = _vf.EnvConfig
    _HarnessConfig = _vf.HarnessConfig
    _TaskData = _vf.TaskData
    _TasksetConfig = _vf.TasksetConfig
    _reward = _vf.reward

__all__ = [
    "SandboxEnv",
    "SandboxEnvConfig",
    "SandboxHarness",
    "SandboxHarnessConfig",
    "SandboxRuntime",
    "SandboxRuntimeConfig",
    "SandboxTask",
    "SandboxTaskData",
    "SandboxTaskset",
    "SandboxTasksetConfig",
]

#: Where the model leaves its answer.
_ANSWER = "/testbed/output/answer.txt"
#: Most bytes of an answer.
_MOST = 1 << 20


class SandboxRuntimeConfig(_Config):
    """The sandbox of an episode; the fields are arguments of `Sandbox`."""

    type: Literal["llm_in_sandbox"] = "llm_in_sandbox"
    image: str = "host"
    workdir: "str | None" = None
    memory: "str | None" = None
    cpus: "float | None" = None
    disk: "str | None" = None
    processes: "int | None" = None
    network: "str | list[str]" = "none"
    stall_timeout: "float | None" = None


class SandboxRuntime(_Runtime):
    """A sandbox as a runtime: lend it with `agent.run(task, runtime=...)`, as `SandboxEnv` does.

    verifiers has a closed list of runtimes that configurations can name, so it cannot be one of those. Failures of the
    machine are `SandboxError`, which verifiers records on the trace instead of a reward.
    """

    def __init__(self, config: SandboxRuntimeConfig | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.config = config or SandboxRuntimeConfig()
        # Traces can be read back with the kinds that verifiers knows only; this one is local as well.
        self.info = _SubprocessInfo()
        self.sandbox: AsyncSandbox | None = None
        _register(self)

    async def start(self) -> None:
        """Creates the sandbox."""
        options = self.config.model_dump()
        del options["type"]
        self.sandbox = await self._do(AsyncSandbox.create(**options))
        self.info.id = f"llm-in-sandbox:{self.sandbox.id}"

    async def teardown(self) -> None:
        """Removes the sandbox."""
        if self.sandbox is not None:
            await self.sandbox.close()

    def cleanup(self) -> None:
        """Removes the sandbox without an event loop."""
        if self.sandbox is not None:
            self.sandbox._handle.close().wait()

    async def run(self, argv: list[str], env: dict[str, str]) -> Any:
        """Runs a program."""
        result = await self._do(self._live().run(argv, env=self.process_env(env)))
        code = 1 if result.exit_code is None else result.exit_code
        return _ProgramResult(code, result.stdout, result.stderr)

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        """Starts a program that runs until the sandbox is removed."""
        command = f"setsid {shlex.join(argv)} > {shlex.quote(log)} 2>&1 < /dev/null &"
        await self._do(self._live().run(command, env=self.process_env(env), check=True))

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        sandbox = self._live()
        if max_bytes is None:
            return await self._do(sandbox.read(path))
        # verifiers asks for one byte more than it takes, to see that there are more.
        done = await self._do(sandbox.run(["head", "-c", str(max_bytes), "--", path], max_output=MAX_READ))
        if done.exit_code:
            raise _SandboxError(f"cannot read {path}: {done.stderr.strip()}")
        return done.stdout_bytes

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file, creating missing directories."""
        await self._do(self._live().write(path, data))

    async def expose(self, port: int) -> str:
        """Makes a port of the sandbox reachable from this machine."""
        return await self._do(self._live().expose(port))

    async def answer(self) -> str:
        """The answer that the model left in its output directory; empty where there is none.

        Raises:
            SandboxError: the sandbox failed.
        """
        sandbox = self._live()
        try:
            content = await self._do(sandbox.read(_ANSWER, max_bytes=_MOST))
        except PathError:
            # There is none, or something that is not a file of a sensible size.
            return ""
        return content.decode("utf-8", "replace").strip()

    def _live(self) -> AsyncSandbox:
        if self.sandbox is None:
            raise _SandboxError("the sandbox is not started")
        return self.sandbox

    @staticmethod
    async def _do(operation: Awaitable[T]) -> T:
        try:
            return await operation
        except (InfrastructureError, SandboxClosed) as error:
            raise _SandboxError(str(error)) from error


class SandboxTaskData(_TaskData):
    """A problem: its row, of which `problem_statement` is the prompt and `files` are input files, by name."""

    row: "dict[str, Any]" = _field(default_factory=dict)


if TYPE_CHECKING:

    class _Task:
        data: SandboxTaskData
        config: Any

        def __init__(self, data: SandboxTaskData, config: Any = None) -> None: ...
else:
    _Task = _vf.Task[SandboxTaskData]


class SandboxTask(_Task):
    """A problem with a grader. Subclasses say how an answer is graded."""

    def grade(self, row: Mapping[str, Any], answer: str) -> float:
        """The reward of an answer; by default whether it equals `ground_truth` mathematically."""
        return _grade.math(str(row["ground_truth"]), answer)

    @_reward
    async def correct(self, runtime: Any) -> float:
        """The reward of the answer in the sandbox. A sandbox that failed is a `SandboxError`, not an empty answer."""
        answer = await runtime.answer()
        return float(await asyncio.to_thread(self.grade, self.data.row, answer))


class SandboxTasksetConfig(_TasksetConfig):
    """Which problems."""

    data: "str | None" = None
    """A file with one JSON row in each line."""


if TYPE_CHECKING:

    class _Taskset:
        config: SandboxTasksetConfig

        def __init__(self, config: SandboxTasksetConfig) -> None: ...
else:
    _Taskset = _vf.Taskset[SandboxTask, SandboxTasksetConfig]


class SandboxTaskset(_Taskset):
    """Problems from a file, or from `rows` of a subclass."""

    task_class: ClassVar[type[SandboxTask]] = SandboxTask

    @classmethod
    def task_type(cls) -> type[SandboxTask]:
        """The class of its tasks."""
        return cls.task_class

    def rows(self) -> Iterable[Mapping[str, Any]]:
        """The rows, with `problem_statement`, and `id` and `files` where there are any."""
        if self.config.data is None:
            raise ValueError("set --env.taskset.data FILE, or override `rows`")
        with open(self.config.data, encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)

    def load(self) -> Iterable[SandboxTask]:
        """The tasks."""
        for row in self.rows():
            given = dict(row)
            name = given.get("id")
            data = SandboxTaskData(
                id=None if name is None else str(name), prompt=given["problem_statement"], row=given
            )
            yield self.task_class(data, self.config.task)


class SandboxHarnessConfig(_HarnessConfig):
    """The agent loop; the fields are arguments of `Agent`."""

    max_tokens: int = 65_536
    command_timeout: float = 120.0
    prompt: str = "general"
    tool_format: "str | None" = None


if TYPE_CHECKING:

    class _Harness:
        config: SandboxHarnessConfig

        def resolve_text_prompt(self, data: Any) -> tuple[str | None, str | None]: ...
else:
    _Harness = _vf.Harness[SandboxHarnessConfig]


class SandboxHarness(_Harness):
    """`Agent` as a harness: the loop runs here, only commands and files are in the sandbox, which needs no network and no
    packages. Every call of the model goes through verifiers."""

    NEEDS_CONTAINER: ClassVar[bool] = False
    # Nothing is executed in a runtime of verifiers' own.
    EXECUTES_CODE: ClassVar[bool] = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Runs the episode."""
        if not isinstance(runtime, SandboxRuntime):
            raise TypeError(
                f"SandboxHarness needs a SandboxRuntime, not {type(runtime).__name__}: use SandboxEnv"
            )
        _, prompt = self.resolve_text_prompt(data)
        config = self.config
        agent = Agent(
            ctx.model,
            base_url=endpoint,
            api_key=secret,
            # verifiers limits turns itself, and its server answers with errors then.
            max_turns=10_000,
            max_tokens=config.max_tokens,
            command_timeout=config.command_timeout,
            prompt=config.prompt,
            tool_format=config.tool_format,
            retries=0,
        )
        files = getattr(data, "row", {}).get("files")
        try:
            trajectory = await agent.arun(prompt or "", files, runtime._live())
        except (InfrastructureError, SandboxClosed) as error:
            if isinstance(error, ModelError):
                # verifiers served the model, and knows why it failed.
                raise
            raise _SandboxError(str(error)) from error
        return _ProgramResult(0, trajectory.outcome, "")


class SandboxEnvConfig(_EnvConfig):
    """One agent, and its sandbox (`--env.sandbox.memory 512M`)."""

    # Its runtime is not used: the sandbox is lent to each run.
    agent: _AgentConfig = _AgentConfig(runtime=_SubprocessConfig())
    sandbox: SandboxRuntimeConfig = SandboxRuntimeConfig()


if TYPE_CHECKING:

    class _Env:
        config: SandboxEnvConfig
else:
    _Env = _vf.Env[SandboxEnvConfig]


class SandboxEnv(_Env):
    """One agent that works in a sandbox of its own in each episode. `--env.retries` repeats episodes whose sandbox failed."""

    async def run(self, task: Any, agents: Any) -> None:
        """Runs one episode."""
        async with self.provision() as runtime:
            await agents.agent.run(task, runtime=runtime)

    @asynccontextmanager
    async def provision(self) -> AsyncGenerator[SandboxRuntime, None]:
        """A running sandbox, which is removed in the end."""
        runtime = SandboxRuntime(self.config.sandbox)
        try:
            await runtime.start()
            yield runtime
        finally:
            await runtime.stop()
