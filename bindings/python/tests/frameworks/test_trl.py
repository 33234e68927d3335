"""The environment of TRL's trainer."""

from __future__ import annotations

import math

import pytest
from helpers import kill_sandboxes, need

need("trl", "torch")

import torch  # noqa: E402
import trl_grpo  # noqa: E402

from llm_in_sandbox import InfrastructureError, SandboxUnavailable, _session  # noqa: E402
from llm_in_sandbox.trl import SandboxEnvironment  # noqa: E402


class Failing(SandboxEnvironment):
    """The sandbox of the first rollout dies in the second step."""

    made: list[Failing] = []
    answers: list[str] = []

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.made.append(self)
        self._resets = 0

    def reset(self, **row):
        super().reset(**row)
        self._resets += 1

    def execute_bash(self, command: str) -> str:
        """Runs a command.

        Args:
            command: The command.
        """
        if self is self.made[0] and self._resets == 2:
            self.sandbox.close()
        said = super().execute_bash(command)
        self.answers.append(said)
        return said


def test_training_learns_from_sandboxes_and_leaves_out_those_that_fail() -> None:
    before = torch.nn.utils.parameters_to_vector(trl_grpo.ScriptedModel(trl_grpo.config(trl_grpo.tokenizer())).parameters())
    trainer = trl_grpo.main(Failing)
    first, second = [entry for entry in trainer.state.log_history if "reward" in entry]
    # Four rollouts, of which the first and the third solve the problem; each called two tools.
    assert first["reward"] == pytest.approx(0.5)
    assert first["tools/call_frequency"] == 2.0
    # Without the first there is one of three: as a 0 it would be one of four.
    assert second["reward"] == pytest.approx(1 / 3)
    assert all(math.isfinite(entry["grad_norm"]) and entry["grad_norm"] > 0 for entry in (first, second))
    assert "[exit code 0]" in Failing.answers[0] and "the sandbox failed" in Failing.answers
    after = torch.nn.utils.parameters_to_vector(trainer.model.parameters())
    assert after.shape == before.shape and torch.isfinite(after).all()
    # Graded rollouts have given their sandboxes back.
    assert all(environment.sandbox is None for environment in Failing.made)


def test_a_failed_rollout_has_no_reward() -> None:
    environment = SandboxEnvironment(lambda row, answer: 0.0)
    environment.reset()
    kill_sandboxes()
    assert environment.execute_bash("true") == "the sandbox failed"
    assert environment.get_reward() is None
    assert isinstance(environment.failure, InfrastructureError)
    environment.reset()
    assert "exit code 0" in environment.execute_bash("true")
    assert environment.get_reward() == 0.0


def test_a_rollout_that_never_submits_is_graded() -> None:
    environment = SandboxEnvironment(lambda row, answer: float(answer == row["right"]))
    environment.reset(right="7")
    environment.str_replace_editor("create", "/testbed/output/answer.txt", file_text="7")
    assert environment.get_reward() == 1.0
    assert environment.get_reward() == 1.0


def test_a_machine_without_sandboxes_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(**_: object) -> None:
        tried.append(1)
        raise SandboxUnavailable("no user namespaces")

    monkeypatch.setattr(_session, "Sandbox", refuse)
    with pytest.raises(SandboxUnavailable):
        SandboxEnvironment(lambda row, answer: 1.0).reset()
    assert len(tried) == 3
