"""An agent loop of verl. Needs `verl`. In the file of `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

    - name: llm_in_sandbox
      _target_: llm_in_sandbox.verl.SandboxAgentLoop
      reward: my_package.rewards:reward        # a function of the row and the answer
      max_turns: 30
      sandbox: {memory: 512M}

and `agent_name: llm_in_sandbox` in the rows, or `rollout.agent.default_agent_loop: llm_in_sandbox`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Union
from uuid import uuid4

from ._agent import Agent
from ._messages import Json
from ._trajectory import Trajectory
from .errors import InfrastructureError, ModelError, UsageError

if TYPE_CHECKING:
    # Where types are checked, verl is not installed.
    class _Loop:
        rollout_config: Any
        server_manager: Any
        tokenizer: Any

        def __init__(self, *arguments: Any, **keywords: Any) -> None: ...

        async def ct_build_initial_tokens(
            self, messages: list[Json], tools: list[Json] | None = None
        ) -> list[int]: ...

        async def ct_merge_context_msg(self, *arguments: Any, **keywords: Any) -> Any: ...
        async def ct_merge_assistant_token(self, *arguments: Any, **keywords: Any) -> Any: ...

    _Output: Any
    _Metrics: Any
    _OmegaConf: Any
else:
    from omegaconf import OmegaConf as _OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase as _Loop
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics as _Metrics
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput as _Output

__all__ = ["SandboxAgentLoop"]

Reward = Callable[[Mapping[str, Any], str], float]


class _Full(Exception):
    """The response has as many tokens as verl allows."""


class SandboxAgentLoop(_Loop):
    """Runs an episode in a sandbox, and returns its tokens: those that verl's server sampled, never tokenized again.

    The task is the last user message of the row's prompt; prompts, tools and limits are those of `Agent`. `extra_fields` of
    the output have `answer` and `outcome`.

    An episode whose sandbox fails is repeated, up to `attempts` times; then `InfrastructureError` ends the step, as verl
    has no row without a reward. A failure of verl's server is raised as it is.

    Args:
        reward: a function of the row and the answer, or its name, as `module:function`. Without one, verl's own reward
            functions score the response.
        tool_format: how the model writes tool calls in its text: "hermes", "qwen3-coder" or "fenced".
        files_key: the field of the row with input files, by name.
        attempts: how often an episode is run at most.
        options: arguments of `Agent` besides the model, such as `max_turns`, `command_timeout` and `sandbox`.
    """

    def __init__(
        self,
        *arguments: Any,
        reward: Union[Reward, str, None] = None,
        tool_format: str = "hermes",
        files_key: str = "files",
        attempts: int = 3,
        tools: Any = None,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        names = ("max_turns", "max_tokens", "max_time", "command_timeout", "prompt", "prompt_config")
        given = {name: keywords.pop(name) for name in (*names, "sandbox") if name in keywords}
        super().__init__(*arguments, **keywords)
        self._reward = _function(reward) if isinstance(reward, str) else reward
        self._files_key = files_key
        self._attempts = attempts
        self._options: Json = {**_plain(options or {}), **_plain(given), "tool_format": tool_format}
        self._response_length: int = self.rollout_config.response_length

    async def run(self, sampling_params: Json, **row: Any) -> Any:
        """Runs the episode of a row."""
        for attempt in range(1, self._attempts + 1):
            try:
                return await self._run(sampling_params, row)
            except ModelError as error:
                # What verl's server raised.
                raise error.__cause__ or error from None
            except InfrastructureError:
                if attempt == self._attempts:
                    raise
        raise UsageError("argument `attempts`: at least 1")

    async def _run(self, sampling_params: Json, row: Mapping[str, Any]) -> Any:
        task = next(m["content"] for m in reversed(list(row["raw_prompt"])) if m["role"] == "user")
        tokens = _Tokens(self, sampling_params)
        # Compaction would rewrite earlier messages.
        agent = Agent(tokens.respond, compact=False, **self._options)
        started = time.monotonic()
        try:
            trajectory: Trajectory | None = await agent.arun(task, row.get(self._files_key))
        except ModelError as error:
            if not isinstance(error.__cause__, _Full):
                raise
            trajectory = error.trajectory
        seconds = time.monotonic() - started
        assert trajectory is not None
        answer = trajectory.answer or ""
        score = None
        if self._reward is not None:
            score = float(await asyncio.to_thread(self._reward, row, answer))
        prompt = len(tokens.ids) - len(tokens.mask)
        most = self._response_length
        outcome = "max_tokens" if tokens.full else trajectory.outcome
        return _Output(
            prompt_ids=tokens.ids[:prompt],
            response_ids=tokens.ids[prompt:][:most],
            response_mask=tokens.mask[:most],
            response_logprobs=tokens.logprobs[:most] if tokens.logprobs else None,
            reward_score=score,
            num_turns=len(tokens.messages) + 1,
            metrics=_Metrics(
                generate_sequences=tokens.seconds, tool_calls=seconds - tokens.seconds
            ),
            extra_fields={**tokens.extra, "answer": answer, "outcome": outcome},
        )


class _Tokens:
    """The model of an episode: asks verl's server, and keeps the tokens."""

    def __init__(self, loop: SandboxAgentLoop, sampling_params: Json) -> None:
        self.loop = loop
        self.sampling_params = sampling_params
        self.request_id = uuid4().hex
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.messages: list[Json] = []
        self.extra: Json = {}
        self.seconds = 0.0
        self.full = False

    async def respond(self, messages: list[Json], tools: list[Json]) -> Json:
        """The model's response to a conversation."""
        loop = self.loop
        shown = tools or None
        if not self.ids:
            self.ids = await loop.ct_build_initial_tokens(messages, tools=shown)
        else:
            # The previous request, the response to it, and what is new.
            previous = messages[: len(self.messages) + 1]
            if previous[:-1] != self.messages or previous[-1]["role"] != "assistant":
                raise RuntimeError("the conversation was rewritten: its tokens would not be those that were sampled")
            merged, mask, logprobs = await loop.ct_merge_context_msg(
                previous, messages, self.ids, self.mask, self.logprobs or None, tools=shown
            )
            if len(mask) >= loop._response_length:
                self.full = True
                raise _Full
            self.ids, self.mask = merged.token_ids, mask
            self.logprobs = logprobs or []
        started = time.monotonic()
        output = await loop.server_manager.generate(
            request_id=self.request_id, prompt_ids=self.ids, sampling_params=self.sampling_params
        )
        self.seconds += time.monotonic() - started
        self.extra.update(output.extra_fields)
        sampled: list[int] = output.token_ids
        known = output.log_probs or None
        merged, self.mask, logprobs = await loop.ct_merge_assistant_token(
            self.ids,
            sampled,
            self.mask,
            self.logprobs if self.logprobs or known else None,
            assistant_logprobs=known,
        )
        self.ids, self.logprobs, self.messages = merged.token_ids, logprobs or [], messages
        if len(self.mask) >= loop._response_length:
            self.full = True
            raise _Full
        text: str = loop.tokenizer.decode(sampled, skip_special_tokens=True)
        return {"role": "assistant", "content": text}


def _function(name: str) -> Reward:
    module, _, attribute = name.partition(":")
    function: Reward | None = getattr(import_module(module), attribute or "reward", None)
    if function is None:
        raise UsageError(f"`{name}`: {module} has no function `{attribute or 'reward'}`")
    return function


def _plain(options: Mapping[str, Any]) -> Json:
    """Options without the types of the configuration."""
    made: Json = _OmegaConf.to_container(_OmegaConf.create(dict(options)), resolve=True)
    return made
