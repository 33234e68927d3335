"""Embedded models, and rollouts over a server with token ids. `LIS_TEST_TINY_GGUF` names a small model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import missing

import llm_in_sandbox as lis
from llm_in_sandbox import Agent, rollout
from llm_in_sandbox._local_model import LocalModel, local_model

TINY = os.environ.get("LIS_TEST_TINY_GGUF", "")
ROWS = [
    {"id": "a", "problem_statement": "What is 1 + 1?", "ground_truth": "2"},
    {"id": "b", "problem_statement": "What is 2 + 2?", "ground_truth": "4"},
]


@pytest.fixture(scope="module", autouse=True)
def model_file() -> None:
    if not TINY:
        missing("gguf", "LIS_TEST_TINY_GGUF is not set")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalModel]:
    yield local_model(TINY)


def test_an_embedded_model(server: LocalModel) -> None:
    trajectory = Agent(f"local:{TINY}", max_turns=1, max_response_tokens=40).run("Say hi.")
    assert trajectory.outcome in ("max_turns", "submitted", "no_tool_calls")
    assert trajectory.usage["completion_tokens"] > 0
    assert local_model(TINY) is server


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(lis.ModelError, match="no-such-model"):
        Agent("local:no-such-model").run("x")


def run(server: LocalModel, rows: Any = ROWS, **options: Any) -> list[list[lis.Rollout]]:
    return rollout(
        "math",
        rows,
        os.path.splitext(os.path.basename(TINY))[0],
        base_url=server.base_url,
        api_key=server.api_key,
        tokenizer=TINY,
        group_size=2,
        max_turns=1,
        max_response_tokens=8,
        concurrency=4,
        warm=0,
        **options,
    )


def test_rollouts_have_the_sampled_tokens(server: LocalModel) -> None:
    groups = run(server, ROWS[:1], mode="llm")
    assert [len(group) for group in groups] == [2]
    for episode in (episode for group in groups for episode in group):
        assert episode.reward is not None, episode.why
        segment = episode.segments[0]
        assert len(segment.token_ids) == len(segment.mask) == len(segment.logprobs)
        sampled = [p for p, mask in zip(segment.logprobs, segment.mask) if mask]
        assert sampled and all(p <= 0 for p in sampled)
        assert all(p == 0 for p, mask in zip(segment.logprobs, segment.mask) if not mask)
        assert segment.prompt_ids and segment.response_mask[0] == 1
        assert episode.trajectory.messages and episode.token_ids == episode.segments[-1].token_ids


def test_rewards_of_the_caller(server: LocalModel) -> None:
    groups = run(server, mode="llm", reward=lambda row, answer: float(row["id"] == "b"), overlong="keep")
    assert [{episode.reward for episode in group} for group in groups] == [{0.0}, {1.0}]

    async def main() -> list[list[lis.Rollout]]:
        name = os.path.splitext(os.path.basename(TINY))[0]
        return await lis.arollout(
            "math", ROWS[:1], name, base_url=server.base_url, api_key=server.api_key, tokenizer=TINY, mode="llm", max_response_tokens=5
        )

    assert len(asyncio.run(main())[0]) == 1


def test_wrong_rollouts(server: LocalModel) -> None:
    with pytest.raises(lis.UsageError, match="tool format"):
        run(server, tool_format="morse")
    with pytest.raises(lis.ModelError):
        rollout("math", ROWS, "m", base_url="http://127.0.0.1:9/v1", tokenizer=TINY, retries=0)
    with pytest.raises(lis.UsageError):
        rollout("no-such-task", ROWS, "m", base_url=server.base_url, tokenizer=TINY)
    with pytest.raises(lis.UsageError):
        rollout("math", [{"id": "x"}], "m", base_url=server.base_url, tokenizer=TINY)
