"""Rollouts in sandboxes, over a server with scripted tokens."""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Script, added_to, children, held, kill, kill_sandboxes, spawners
from token_server import END, LOGPROB, NAME, TokenServer, decoded, save_tokenizer

import llm_in_sandbox as lis
from llm_in_sandbox import Rollout, rollout

ROWS = [
    {"id": "a", "problem_statement": "What is 6 times 7?", "ground_truth": "42"},
    {"id": "b", "problem_statement": "What is 6 times 8?", "ground_truth": "48"},
]


def tool_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ANSWER = tool_call("execute_bash", command="echo '\\boxed{42}' > answer.txt; cat answer.txt")
SUBMIT = tool_call("submit")


def turn_of(prompt: str) -> int:
    """The number of responses before this one."""
    return prompt.count("<|im_start|>assistant") - 1


def solve(prompt: str, seed: int) -> str:
    return SUBMIT if turn_of(prompt) else ANSWER


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[list[Rollout]]]:
    tokenizer = save_tokenizer(tmp_path)

    def run(respond: Callable[[str, int], str], rows: Any = ROWS, **options: Any) -> list[list[Rollout]]:
        with TokenServer(respond) as server:
            given = {"base_url": server.base_url, "tokenizer": tokenizer, "warm": 0, "vocabulary_size": 259, **options}
            return rollout("math", rows, NAME, **given)

    return run


def test_episodes_in_sandboxes(run: Callable[..., list[list[Rollout]]], tmp_path: Path) -> None:
    groups = run(solve, group_size=2, sandbox={"memory": "256M"})
    assert [[episode.reward for episode in group] for group in groups] == [[1.0, 1.0], [0.0, 0.0]]
    assert [[(e.problem, e.member) for e in group] for group in groups] == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]
    for episode in (episode for group in groups for episode in group):
        assert (episode.end, episode.answer, episode.why) == ("submitted", "\\boxed{42}", None)
        (segment,) = episode.segments
        sampled = [token for token, one in zip(segment.token_ids, segment.mask) if one]
        others = [token for token, one in zip(segment.token_ids, segment.mask) if not one]
        assert decoded(sampled) == ANSWER + SUBMIT and sampled.count(END) == 2
        assert "What is 6 times" in decoded(segment.prompt_ids) and "exit code 0" in decoded(others)
        assert segment.logprobs == [LOGPROB if one else 0.0 for one in segment.mask]
        assert episode.trajectory.submitted and "\\boxed{42}" in episode.trajectory.steps[0]["observation"]
        assert episode.events[0]["protection"]["runtime"] == "native"


def test_rewards_of_the_caller_and_asyncio(run: Callable[..., list[list[Rollout]]], tmp_path: Path) -> None:
    groups = run(solve, reward=lambda row, answer: len(answer) + (row["id"] == "b") / 2)
    assert [group[0].reward for group in groups] == [10.0, 10.5]

    async def main() -> list[list[Rollout]]:
        with TokenServer(solve) as server:
            return await lis.arollout(
                "math", ROWS[:1], NAME, base_url=server.base_url, tokenizer=tmp_path, warm=0, vocabulary_size=259
            )

    assert asyncio.run(main())[0][0].reward == 1.0


def test_a_runtime_that_ends_is_replaced_and_its_episodes_are_repeated(run: Callable[..., list[list[Rollout]]]) -> None:
    killed: list[int] = []

    def respond(prompt: str, seed: int) -> str:
        if turn_of(prompt) and not killed:
            killed.append(seed)
            kill_sandboxes()
        return solve(prompt, seed)

    (group,) = run(respond, ROWS[:1], group_size=2)
    assert killed and [episode.reward for episode in group] == [1.0, 1.0]
    assert max(episode.metrics["tries"] for episode in group) == 2


def test_a_sandbox_that_fails_every_time_is_the_policys_fault(run: Callable[..., list[list[Rollout]]]) -> None:
    unlucky: list[int] = []

    def respond(prompt: str, seed: int) -> str:
        if not turn_of(prompt):
            # The same in every try.
            unlucky.append(seed)
            return ANSWER.replace("cat", "echo unlucky; cat") if seed == unlucky[0] else ANSWER
        if "echo unlucky" in prompt:
            # One at once, so it is this one's.
            kill([child for spawner in spawners() for child in children(spawner)])
        return SUBMIT

    (group,) = run(respond, ROWS[:1], group_size=2, concurrency=1, reward=lambda row, answer: 0.7)
    (failed,) = [episode for episode in group if episode.why]
    (other,) = [episode for episode in group if not episode.why]
    assert (failed.end, failed.reward, failed.raw_reward, failed.answer) == ("infrastructure", 0.0, 0.0, "")
    assert failed.metrics["tries"] == 3 and "gone" in str(failed.why)
    assert (other.reward, other.metrics["tries"]) == (0.7, 1)


def test_a_server_that_fails_gives_no_reward(run: Callable[..., list[list[Rollout]]]) -> None:
    def respond(prompt: str, seed: int) -> str:
        if "6 times 8" in prompt:
            raise ConnectionError("the replica is gone")
        return solve(prompt, seed)

    solved, failed = run(respond, retries=0)
    assert solved[0].reward == 1.0
    assert (failed[0].reward, failed[0].end) == (None, "infrastructure")
    assert "the replica is gone" in str(failed[0].why)


@pytest.mark.parametrize(
    ("overlong", "reward", "mask"), [("zero", 0.0, 1), ("mask", 1.0, 0), ("keep", 1.0, 1)]
)
def test_episodes_that_reach_a_limit(
    run: Callable[..., list[list[Rollout]]], overlong: str, reward: float, mask: int
) -> None:
    for own in (None, lambda row, answer: 1.0):
        ((episode,),) = run(solve, ROWS[:1], max_turns=1, overlong=overlong, reward=own)
        assert (episode.end, episode.reward, episode.raw_reward) == ("max_turns", reward, 1.0)
        assert episode.masked == (overlong == "mask")
        (segment,) = episode.segments
        assert max(segment.mask) == mask and "What is 6 times" in decoded(segment.prompt_ids)
        # What was sampled is known, masked or not.
        assert decoded(segment.response_ids) == ANSWER and set(segment.response_logprobs) == {LOGPROB}
        assert segment.prompt_length == len(segment.prompt_ids) > 0


def test_asyncio_has_the_same_arguments() -> None:
    assert list(inspect.signature(lis.arollout).parameters.values()) == list(inspect.signature(rollout).parameters.values())


def test_an_exception_of_the_reward_is_the_callers(run: Callable[..., list[list[Rollout]]]) -> None:
    with pytest.raises(ZeroDivisionError):
        run(solve, reward=lambda row, answer: 1 / 0)
    with pytest.raises((TypeError, ValueError)):
        run(solve, reward=lambda row, answer: "much")


def test_lines_that_only_look_like_several(run: Callable[..., list[list[Rollout]]]) -> None:
    text = "one\u2028two\u0085three\x0bfour"

    def respond(prompt: str, seed: int) -> str:
        return SUBMIT if turn_of(prompt) else f"{text}\n{ANSWER}"

    rows = [{**ROWS[0], "problem_statement": f"What is 6 times 7? {text}"}]
    ((episode,),) = run(respond, rows)
    assert episode.reward == 1.0 and text in episode.trajectory.messages[2]["content"]
    assert text in episode.trajectory.messages[1]["content"]


def test_cancelling_leaves_nothing(tmp_path: Path) -> None:
    silent = threading.Event()

    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        def respond(prompt: str, seed: int) -> str:
            loop.call_soon_threadsafe(asked.set)
            silent.wait(120)
            return SUBMIT

        with TokenServer(respond) as server:
            given = {"base_url": server.base_url, "tokenizer": save_tokenizer(tmp_path), "warm": 0, "vocabulary_size": 259}
            task = asyncio.create_task(lis.arollout("math", ROWS, NAME, group_size=2, **given))
            await asyncio.wait_for(asked.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            silent.set()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with lis.Sandbox():
        before = held()
        asyncio.run(main())
        assert added_to(before) == set()


def test_keyboard_interrupt_ends_rollouts(script: Callable[[str], Script], tmp_path: Path) -> None:
    run = script(
        f"""
        import sys, threading
        sys.path.append({str(Path(__file__).parent)!r})
        from token_server import NAME, TokenServer, save_tokenizer
        from pathlib import Path
        import llm_in_sandbox as lis
        def respond(prompt, seed):
            print("asked", flush=True)
            threading.Event().wait()
        tokenizer = save_tokenizer(Path({str(tmp_path)!r}))
        server = TokenServer(respond)
        try:
            lis.rollout(
                "math", {ROWS[:1]!r}, NAME, base_url=server.base_url, tokenizer=tokenizer, warm=0, vocabulary_size=259
            )
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    assert run.line() == "asked"
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.line() == "interrupted"
    code, _, err = run.finish()
    assert code == 0 and time.monotonic() - start < 30, err


@pytest.mark.parametrize("name", ["max_time", "command_timeout"])
def test_invalid_time_limits(run: Callable[..., list[list[Rollout]]], name: str) -> None:
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(lis.UsageError, match=name):
            run(solve, **{name: wrong})
    with pytest.raises(TypeError, match=name):
        run(solve, **{name: "1"})
