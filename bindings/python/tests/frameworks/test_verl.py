"""The agent loop of verl."""

from __future__ import annotations

import pytest
from helpers import kill_sandboxes, need

need("verl", "torch", "trl")

import verl_rollout  # noqa: E402

from llm_in_sandbox import InfrastructureError  # noqa: E402


def test_tokens_masks_probabilities_and_rewards() -> None:
    servers = []

    class Server(verl_rollout.ScriptedServer):
        def __init__(self, vocabulary):
            super().__init__(vocabulary)
            servers.append(self)

    batch = verl_rollout.main(1, Server).batch
    vocabulary = servers[0].vocabulary
    prompt = [int(i) for i, seen in zip(batch["prompts"][0], batch["attention_mask"][0]) if seen]
    length = int(batch["attention_mask"][0].sum()) - len(prompt)
    response, mask = batch["responses"][0][:length].tolist(), batch["response_mask"][0][:length].tolist()
    # The server saw exactly these tokens: the prompt, then the prompt with the first response and its result.
    first, second = servers[0].requests
    assert first == prompt and second == (prompt + response)[: len(second)]
    sampled = vocabulary.decode([token for token, one in zip(response, mask) if one])
    assert sampled.count("<|im_end|>") == 2 and '"name": "submit"' in sampled and "exit code" not in sampled
    others = vocabulary.decode([token for token, one in zip(response, mask) if not one])
    assert "exit code 0" in others and "submit" not in others
    probabilities = batch["rollout_log_probs"][0][:length].tolist()
    assert all(value == (-0.5 if one else 0.0) for value, one in zip(probabilities, mask))
    assert batch["rm_scores"].sum().item() == 1.0


class Killing(verl_rollout.ScriptedServer):
    """Ends the sandbox after one of the responses."""

    calls = 0
    deadly = 1

    async def generate(self, *arguments, **keywords):
        Killing.calls += 1
        output = await super().generate(*arguments, **keywords)
        if Killing.calls == Killing.deadly:
            kill_sandboxes()
        return output


# After the second response, the submission, only the answer is lost.
@pytest.mark.parametrize("deadly", [1, 2])
def test_an_episode_whose_sandbox_dies_is_repeated(deadly: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Killing.calls = 0
    monkeypatch.setattr(Killing, "deadly", deadly)
    assert verl_rollout.main(1, Killing).batch["rm_scores"].sum().item() == 1.0
    assert Killing.calls == 2 + deadly


def test_without_another_attempt_the_step_fails_and_nothing_is_scored() -> None:
    Killing.calls = 0
    with pytest.raises(InfrastructureError):
        verl_rollout.main(1, Killing, verl_rollout.LOOPS + "  attempts: 1\n")


def test_a_failing_server_is_its_own_error() -> None:
    class Broken(verl_rollout.ScriptedServer):
        async def generate(self, *arguments, **keywords):
            raise ConnectionError("the replica is gone")

    with pytest.raises(ConnectionError, match="the replica is gone"):
        verl_rollout.main(1, Broken)


def test_a_response_that_is_too_long_is_cut() -> None:
    class Talking(verl_rollout.ScriptedServer):
        async def generate(self, *arguments, **keywords):
            output = await super().generate(*arguments, **keywords)
            output.token_ids = output.token_ids[:-1] * 60
            output.log_probs = [-0.5] * len(output.token_ids)
            return output

    output = verl_rollout.main(1, Talking)
    assert output.batch["response_mask"].sum().item() == 4096
    assert output.non_tensor_batch["outcome"].tolist() == ["max_tokens"]
    assert output.batch["rm_scores"].sum().item() == 0.0
