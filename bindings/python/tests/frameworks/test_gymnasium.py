"""The Gymnasium environment."""

from __future__ import annotations

import pickle

import pytest
from helpers import kill_sandboxes, need

need("gymnasium")

import gymnasium  # noqa: E402
import gymnasium_episode  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

from llm_in_sandbox import InfrastructureError, SandboxUnavailable, _session  # noqa: E402
from llm_in_sandbox.gymnasium import SandboxEnv, SandboxFailure  # noqa: E402

ROWS = [{"problem_statement": "What?", "ground_truth": "x"}]


def reward(row, answer):
    return float(answer == row["ground_truth"])


def call(name, **arguments):
    return {"content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


def test_the_example_solves_its_problem() -> None:
    assert gymnasium_episode.main() == (1.0, "submitted")


def test_gymnasium_finds_no_fault() -> None:
    env = SandboxEnv(ROWS, reward, max_turns=2)
    check_env(env, skip_render_check=True)
    env.close()


def test_texts_with_calls_are_actions() -> None:
    env = SandboxEnv(ROWS, reward, tool_format="hermes")
    env.reset(seed=1)
    text = '<tool_call>\n{"name": "execute_bash", "arguments": {"command": "echo x > output/answer.txt"}}\n</tool_call>'
    observation, score, terminated, truncated, _ = env.step(text)
    assert "exit code 0" in observation and (score, terminated, truncated) == (0.0, False, False)
    *_, info = env.step('<tool_call>\n{"name": "submit", "arguments": {}}\n</tool_call>')
    assert info["outcome"] == "submitted" and info["trajectory"].answer == "x"
    with pytest.raises(RuntimeError, match="call `reset`"):
        env.step("more")
    env.close()


def test_limits_truncate() -> None:
    env = SandboxEnv(ROWS, reward, max_turns=1)
    env.reset()
    _, score, terminated, truncated, info = env.step(call("execute_bash", command="echo y > output/answer.txt"))
    assert (score, terminated, truncated, info["outcome"]) == (0.0, False, True, "max_turns")


def test_a_dead_sandbox_is_an_error_of_gymnasium_and_no_reward() -> None:
    env = SandboxEnv(ROWS, reward)
    env.reset()
    kill_sandboxes()
    with pytest.raises(gymnasium.error.Error) as caught:
        env.step(call("execute_bash", command="true"))
    assert isinstance(caught.value, InfrastructureError) and isinstance(caught.value, SandboxFailure)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    env.reset()
    env.step(call("execute_bash", command="echo x > output/answer.txt"))
    *_, info = env.step(call("submit"))
    assert info["outcome"] == "submitted"


def test_an_answer_that_is_lost_is_an_error_of_gymnasium_and_no_reward() -> None:
    env = SandboxEnv(ROWS, reward)
    env.reset()
    env.step(call("execute_bash", command="echo x > output/answer.txt"))
    kill_sandboxes()
    with pytest.raises(SandboxFailure, match="files were not collected"):
        env.step(call("submit"))


def test_a_machine_without_sandboxes_is_an_error_of_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise SandboxUnavailable("no user namespaces")

    monkeypatch.setattr(_session, "Sandbox", refuse)
    with pytest.raises(SandboxFailure, match="no user namespaces"):
        SandboxEnv(ROWS, reward).reset()
