"""`Agent`: a model that works in a sandbox, of the engine or as in the reference package.

`Agent(model, ...)` is the engine's. `Agent(args, logger)` with an `AgentArgs` behaves as the reference's class does, and
`Agent.__new__(Agent)._execute_action(action, runtime)` needs no configuration at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, overload

from ._agent import Agent as _EngineAgent
from ._agent import Files, Listener
from ._model import Model
from ._reference.agent import AgentArgs, ReferenceAgent, Runtime
from ._reference.logs import agent_logger as get_logger
from ._sandbox import Sandbox
from .trajectory import Trajectory

__all__ = ["Agent", "AgentArgs", "get_logger"]


class Agent(ReferenceAgent, _EngineAgent):
    __doc__ = _EngineAgent.__doc__

    # The first signature is the engine's, which has the defaults; a test compares them.
    @overload
    def __init__(
        self,
        model: Model | None = ...,
        *,
        base_url: str | None = ...,
        api_key: str | None = ...,
        provider: Literal["openai", "anthropic"] | None = ...,
        tools: Iterable[Callable[..., Any]] = ...,
        max_turns: int = ...,
        max_tokens: int = ...,
        max_response_tokens: int | None = ...,
        max_time: float | None = ...,
        max_cost: float | None = ...,
        command_timeout: float = ...,
        prompt: str = ...,
        prompt_config: str | None = ...,
        builtin_tools: Literal["all", "without_execution", "without_files"] = ...,
        tool_format: str | None = ...,
        temperature: float | None = ...,
        top_p: float | None = ...,
        seed: int | None = ...,
        images: bool = ...,
        compact: bool = ...,
        headers: Mapping[str, str] | None = ...,
        extra_body: Mapping[str, Any] | None = ...,
        retries: int = ...,
        sandbox: Mapping[str, Any] | None = ...,
    ) -> None: ...

    @overload
    def __init__(self, args: AgentArgs, logger: logging.Logger | None = None) -> None: ...

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        if "args" in keywords or (arguments and isinstance(arguments[0], AgentArgs)):
            self._configure(*arguments, **keywords)
        else:
            _EngineAgent.__init__(self, *arguments, **keywords)

    @overload
    def run(
        self,
        task: str,
        files: Files | None = None,
        sandbox: Sandbox | None = None,
        *,
        on_event: Listener | None = None,
        on_delta: Listener | None = None,
    ) -> Trajectory: ...

    @overload
    def run(
        self,
        runtime: Runtime,
        problem_statement: str,
        max_steps: int = 30,
        max_token_limit: int = 65536,
        max_tokens_per_call: int = 65536,
        temperature: float = 1.0,
    ) -> Trajectory: ...

    def run(self, *arguments: Any, **keywords: Any) -> Trajectory:
        """Gives the model a task, and returns what happened.

        `run(task, files=None, sandbox=None, *, on_event=None, on_delta=None)` of `Agent(model)`: see `Agent`.
        `run(runtime, problem_statement, max_steps=30, ...)` of `Agent(args)`: the loop of the reference package.
        """
        if hasattr(self, "args"):
            return self._run_reference(*arguments, **keywords)
        return _EngineAgent.run(self, *arguments, **keywords)
