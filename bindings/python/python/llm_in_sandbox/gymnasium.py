"""A Gymnasium environment: problems that a model solves in a sandbox, turn by turn. Needs `gymnasium`.

    import gymnasium
    from llm_in_sandbox.gymnasium import SandboxEnv

    env = SandboxEnv(rows, reward=lambda row, answer: grade.math(row["ground_truth"], answer))
    text, info = env.reset(seed=1)
    text, reward, terminated, truncated, info = env.step({"tool_calls": [...]})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ._agent import Files
from ._messages import Json
from ._session import Session
from .errors import InfrastructureError

if TYPE_CHECKING:
    # Where types are checked, Gymnasium is not installed.
    class _Error(Exception): ...

    class _Space:
        np_random: Any

        def __init__(self, shape: Any, dtype: Any, seed: Any = None) -> None: ...

    class _Env:
        np_random: Any

        def reset(self, *, seed: int | None = None, options: Json | None = None) -> Any: ...

        def close(self) -> None: ...
else:
    from gymnasium import Env as _Env
    from gymnasium import Space as _Space
    from gymnasium.error import Error as _Error

__all__ = ["MessageSpace", "SandboxEnv", "SandboxFailure"]

#: Outcomes after which the episode could have been longer.
_LIMITS = ("max_turns", "max_tokens", "context_full", "deadline", "cost")


class SandboxFailure(_Error, InfrastructureError):
    """The machine failed, not the policy: Gymnasium's error and ours. The episode has no reward; call `reset`."""


class MessageSpace(_Space):
    """Responses of a model: texts, and messages of chat completions. Also the observations, which are texts."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(None, None, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short text, for checks of the environment."""
        letters = self.np_random.integers(ord("a"), ord("z") + 1, size=8)
        return "".join(chr(letter) for letter in letters)

    def contains(self, x: Any) -> bool:
        """Whether it is a text or a message."""
        return isinstance(x, (str, Mapping))

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no fixed size."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace)

    def __hash__(self) -> int:
        return hash(MessageSpace)


class SandboxEnv(_Env):
    """Problems that a model solves in a sandbox. An observation is a text: the prompt, then the results of tool calls.

    `info` has `messages` and `tools`, the whole request to a model in the format of OpenAI's chat completions, and `problem`;
    at the end of an episode `trajectory` and `outcome` too. An episode that reaches a limit is truncated; its answer is
    graded all the same.

    Args:
        problems: rows with `problem_statement`, and `files` where there are input files (as for `Agent.run`).
        reward: a function of the row and the answer; the answer is empty where there is none.
        render_mode: "ansi" for `render` to return the conversation as text.
        options: arguments of `Agent` besides the model, such as `max_turns`, `tool_format` (how tool calls are written in a
            text, such as "hermes") and `sandbox`.
    """

    metadata: Json = {"render_modes": ["ansi"]}

    def __init__(
        self,
        problems: Sequence[Mapping[str, Any]],
        reward: Callable[[Mapping[str, Any], str], float],
        *,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.problems = list(problems)
        if not self.problems:
            raise ValueError("an environment needs at least one problem")
        self.reward = reward
        self.render_mode = render_mode
        self.options = options
        self.observation_space = MessageSpace()
        self.action_space = MessageSpace()
        self.session: Session | None = None
        self._problem: Mapping[str, Any] = {}
        self._seen = 0

    def reset(
        self, *, seed: int | None = None, options: Json | None = None
    ) -> tuple[str, Json]:
        """Starts an episode of a problem chosen at random, or of the one with the index `options["problem"]`.

        Raises:
            SandboxFailure: no sandbox could be created.
        """
        super().reset(seed=seed)
        self.close()
        index = (options or {}).get("problem")
        if index is None:
            index = int(self.np_random.integers(len(self.problems)))
        self._problem = self.problems[index]
        files: Files | None = self._problem.get("files")
        try:
            self.session = Session(self._problem["problem_statement"], files, **self.options)
        except InfrastructureError as error:
            raise _failure(error) from error
        self._seen = 0
        return self._observe(), self._info()

    def step(self, action: str | Json) -> tuple[str, float, bool, bool, Json]:
        """Gives the model's response: observation, reward, terminated, truncated, info.

        Raises:
            SandboxFailure: the sandbox failed; the episode has no reward.
        """
        session = self.session
        if session is None or session.trajectory is not None:
            raise RuntimeError("the episode has ended; call `reset`")
        try:
            session.step(action)
        except InfrastructureError as error:
            self.session = None
            raise _failure(error) from error
        trajectory = session.trajectory
        if trajectory is None:
            return self._observe(), 0.0, False, False, self._info()
        score = float(self.reward(self._problem, trajectory.answer or ""))
        info = {**self._info(), "trajectory": trajectory, "outcome": trajectory.outcome}
        session.close()
        truncated = trajectory.outcome in _LIMITS
        return "", score, not truncated, truncated, info

    def render(self) -> str | None:
        """The conversation so far, where `render_mode` is "ansi"."""
        if self.render_mode != "ansi" or self.session is None:
            return None
        return "\n\n".join(f"{m['role']}: {m['content']}" for m in self.session.messages)

    def close(self) -> None:
        """Ends the episode and removes its sandbox."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def _observe(self) -> str:
        assert self.session is not None
        new = self.session.messages[self._seen :]
        self._seen = len(self.session.messages)
        texts = [message["content"] for message in new if message["role"] != "assistant"]
        return "\n\n".join(text if isinstance(text, str) else str(text) for text in texts)

    def _info(self) -> Json:
        assert self.session is not None
        # A copy, because callers may change it.
        return deepcopy(
            {
                "messages": self.session.messages,
                "tools": self.session.tools,
                "problem": dict(self._problem),
            }
        )


def _failure(error: InfrastructureError) -> SandboxFailure:
    made = SandboxFailure(str(error))
    made.trajectory = error.trajectory
    return made
