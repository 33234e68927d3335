"""`rollout`: episodes for training, with the tokens that were sampled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Union

from . import _arguments
from ._arguments import Path
from ._engine import engine
from ._event_loop import finished
from ._messages import Json, json_lines
from ._model import settings
from ._scratch import Scratch
from ._trajectory import Trajectory
from .errors import UsageError

__all__ = ["Rollout", "Segment", "arollout", "rollout"]

Rows = Union[Path, Sequence[Path], Iterable[Mapping[str, Any]]]
#: A reward from the row of a problem and an answer.
RewardFunction = Callable[[Mapping[str, Any], str], float]


@dataclass(frozen=True)
class Segment:
    """A sequence of tokens as the policy saw and continued it. The first ones are the prompt."""

    token_ids: list[int] = field(repr=False)
    mask: list[int] = field(repr=False)
    """1 where the loss counts the token: where the policy sampled it. 0 for the prompt and the environment, and for all
    tokens of an episode that `overlong="mask"` leaves out."""
    logprobs: list[float] = field(repr=False)
    """The log-probability with which each token was sampled; 0.0 where it was not."""
    prompt_length: int
    """Tokens before the first that was sampled, masked or not."""

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens of the prompt."""
        return self.token_ids[: self.prompt_length]

    @property
    def response_ids(self) -> list[int]:
        """The tokens after the prompt: sampled ones, and those of tool results in between."""
        return self.token_ids[self.prompt_length :]

    @property
    def response_mask(self) -> list[int]:
        """The mask of `response_ids`."""
        return self.mask[self.prompt_length :]

    @property
    def response_logprobs(self) -> list[float]:
        """The log-probabilities of `response_ids`."""
        return self.logprobs[self.prompt_length :]


@dataclass(frozen=True)
class Rollout:
    """One episode: its tokens, its end and its reward."""

    problem: str
    """The id of its problem."""
    member: int
    """Its position among the episodes of the problem."""
    segments: list[Segment]
    """Its tokens; more than one segment where the context did not always extend the previous one."""
    end: str
    """"submitted", "max_turns", "truncated", "timeout", "no_calls" or "infrastructure"."""
    reward: float | None
    """The reward; `None` where the infrastructure failed: such an episode says nothing about the policy.

    An episode is repeated when its sandbox fails. Where each of the three sandboxes failed after the policy had acted in
    it, or the task's grader fails on the answer, the policy is at fault: the reward is 0.0 and `why` says what failed.
    """
    raw_reward: float | None
    """The reward of its answer, however it ended."""
    answer: str
    why: str | None
    """What failed, if something did."""
    masked: bool
    """Whether its masks are 0 throughout: it reached a limit under `overlong="mask"`. Its reward counts in its group."""
    metrics: Mapping[str, Any] = field(repr=False)
    """Turns, calls, tokens, milliseconds."""
    events: list[Json] = field(repr=False)

    @property
    def trajectory(self) -> Trajectory:
        """What happened."""
        return Trajectory(self.events, answer=self.answer)

    @property
    def token_ids(self) -> list[int]:
        """The tokens of the last segment, which is the whole conversation where there is one."""
        return self.segments[-1].token_ids if self.segments else []

    @property
    def mask(self) -> list[int]:
        """The mask of the last segment."""
        return self.segments[-1].mask if self.segments else []

    @property
    def logprobs(self) -> list[float]:
        """The log-probabilities of the last segment."""
        return self.segments[-1].logprobs if self.segments else []


def rollout(
    task: Path,
    problems: Rows,
    model: str,
    *,
    base_url: str,
    tokenizer: Path,
    api_key: str | None = None,
    group_size: int = 1,
    limit: int | None = None,
    step: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    max_response_tokens: int | None = None,
    max_time: float | None = None,
    command_timeout: float = 120.0,
    mode: Literal["sandbox", "llm"] = "sandbox",
    tool_format: str = "hermes",
    api: Literal["completions", "generate"] = "completions",
    context: int | None = None,
    vocabulary_size: int | None = None,
    overlong: Literal["zero", "mask", "keep"] = "zero",
    reward: RewardFunction | None = None,
    concurrency: int = 64,
    warm: int = 8,
    retries: int = 5,
    sandbox: Mapping[str, Any] | None = None,
) -> list[list[Rollout]]:
    """Runs episodes of problems for training; returns one list for each problem, of `group_size` episodes.

    The tokens are those the server sampled: nothing is tokenized again.

    Args:
        task: a built-in task such as "math", or the directory of one of your own: prompts, limits and grader.
        problems: rows: files, or dictionaries with the keys of the task's rows.
        model: the name at the server.
        base_url: a server with token ids in and out: vLLM, SGLang, or `llm-in-sandbox model serve`.
        tokenizer: a directory with `tokenizer.json` and its chat template, or a GGUF file.
        group_size: episodes of each problem.
        limit: most problems.
        step, seed: episodes depend on them, the problem and their position, not on timing, where the server is deterministic.
        overlong: for episodes that reach the limit of turns or tokens, "zero" makes the reward 0.0; "mask" leaves the
            reward and makes the mask 0 throughout, also after the limit of time; "keep" does nothing.
        reward: a function of the row and the answer, in place of the task's grader.
        concurrency: sandboxes at once; `warm` are created ahead.

    Raises:
        ModelError: the server cannot be used.
        InfrastructureError: all episodes failed.
    """
    with _Request(locals()) as made:
        groups = engine().rollout(made.json(), made.spec()).wait()
        return made.results(groups)


async def arollout(
    task: Path,
    problems: Rows,
    model: str,
    *,
    base_url: str,
    tokenizer: Path,
    api_key: str | None = None,
    group_size: int = 1,
    limit: int | None = None,
    step: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    max_turns: int | None = None,
    max_tokens: int | None = None,
    max_response_tokens: int | None = None,
    max_time: float | None = None,
    command_timeout: float = 120.0,
    mode: Literal["sandbox", "llm"] = "sandbox",
    tool_format: str = "hermes",
    api: Literal["completions", "generate"] = "completions",
    context: int | None = None,
    vocabulary_size: int | None = None,
    overlong: Literal["zero", "mask", "keep"] = "zero",
    reward: RewardFunction | None = None,
    concurrency: int = 64,
    warm: int = 8,
    retries: int = 5,
    sandbox: Mapping[str, Any] | None = None,
) -> list[list[Rollout]]:
    """The same for asyncio. Cancelling the task cancels the episodes."""
    with _Request(locals()) as made:
        groups = await finished(engine().rollout(made.json(), made.spec()))
        return made.results(groups)


class _Request:
    """The arguments of `rollout`, and the files they need."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.scratch = ExitStack()
        problems = arguments["problems"]
        if isinstance(problems, (str, os.PathLike)):
            self.files = [os.path.abspath(os.fspath(problems))]
            return
        listed: list[Any] = list(problems)
        if all(isinstance(item, (str, os.PathLike)) for item in listed):
            self.files = [os.path.abspath(os.fspath(item)) for item in listed]
            return
        for row in listed:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a dictionary, not {type(row).__name__}")
        lines = "".join(json.dumps(row) + "\n" for row in listed)
        path = self.scratch.enter_context(Scratch()).file("rows.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(lines)
        self.files = [path]

    def __enter__(self) -> _Request:
        return self

    def __exit__(self, *_: object) -> None:
        self.scratch.close()

    def json(self) -> str:
        given = self.arguments
        for name in ("max_time", "command_timeout"):
            given[name] = _arguments.seconds(name, given[name])
        server = settings(given["model"], base_url=given["base_url"], api_key=given["api_key"], retries=given["retries"])
        if server.base_url is None:
            raise UsageError("rollout needs a server: give its base_url")
        names = (
            "group_size limit step temperature top_p top_k seed max_turns max_tokens max_response_tokens max_time "
            "command_timeout mode tool_format api context vocabulary_size overlong concurrency warm"
        )
        return json.dumps(
            {
                **{name: given[name] for name in names.split()},
                "task": os.fspath(given["task"]),
                "data": self.files,
                "tokenizer": os.path.abspath(os.fspath(given["tokenizer"])),
                "model": server.request(),
                "graded": given["reward"] is None,
            }
        )

    def spec(self) -> dict[str, Any]:
        options = dict(_arguments.mapping("sandbox", self.arguments["sandbox"]))
        return _arguments.spec(options.pop("image", "host"), options)

    def results(self, groups: list[list[Any]]) -> list[list[Rollout]]:
        return [[self._rollout(*member) for member in group] for group in groups]

    def _rollout(self, text: str, segments: list[Any], events: str, row: str) -> Rollout:
        record: Json = json.loads(text)
        made = Rollout(
            problem=record.pop("problem"),
            member=record.pop("member"),
            segments=[Segment(*segment) for segment in segments],
            end=record.pop("end"),
            reward=record.pop("reward"),
            raw_reward=record.pop("raw_reward"),
            answer=record.pop("answer"),
            why=record.pop("why"),
            masked=record.pop("loss") == "masked",
            metrics=record,
            events=json_lines(events),
        )
        function: RewardFunction | None = self.arguments["reward"]
        if function is None or made.why is not None:
            return made
        given = float(function(json.loads(row), made.answer))
        cut = self.arguments["overlong"] == "zero" and made.end in ("max_turns", "truncated")
        return replace(made, reward=0.0 if cut else given, raw_reward=given)
