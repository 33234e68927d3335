"""The environment and the agent of LLM-in-Sandbox-RL, unchanged, on our package.

Needs a checkout of the repository: `LLM_IN_SANDBOX_RL=DIRECTORY`. What they call is in `test_interface.py` and
`test_reference.py` as well.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("LLM_IN_SANDBOX_RL")
pytestmark = [
    pytest.mark.skipif(not CHECKOUT, reason="skip: LLM_IN_SANDBOX_RL is not set; set it to a checkout of LLM-in-Sandbox-RL (the directory with `rllm`)"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", autouse=True)
def rllm() -> None:
    """Its packages without their `__init__`, which import all of a training framework."""
    for name in ("rllm", "rllm.agents", "rllm.environments", "rllm.environments.base", "rllm.environments.llm_in_sandbox"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(str(CHECKOUT), *name.split(".")))]
        sys.modules[name] = module


class Response:
    """A model's output, as its engine passes it to the agent."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.text = self.content = "I act."
        self.reasoning = "Because."
        self.tool_calls = [types.SimpleNamespace(name=name, arguments=arguments, id="call_1")] if name else []


@pytest.mark.parametrize(
    ("domain", "truth", "kind", "expected"),
    [("math", "1/2", None, 1.0), ("instruct_pretrain", "A, C", "Multiple Choice", 2 / 3), ("biomed_mini", "B", None, 0.0)],
)
def test_episode(domain: str, truth: str, kind: str | None, expected: float) -> None:
    from rllm.agents.llm_in_sandbox_agent import LLMinSandboxAgent  # type: ignore[import-not-found]
    from rllm.environments.llm_in_sandbox.llm_in_sandbox_env import LLMinSandboxEnv  # type: ignore[import-not-found]

    answer = {"math": "0.5", "instruct_pretrain": "A"}.get(domain, "C")
    row = {"problem_statement": "What?", "ground_truth": truth, "domain": domain, "qa_type": kind or "open_ended"}
    env = LLMinSandboxEnv.from_dict({**row, "input_files": '{"a/b.txt": "content"}', "input_dir": "/testbed/documents"})
    agent = LLMinSandboxAgent()
    try:
        observation, info = env.reset()
        agent.update_from_env(observation, 0.0, False, {**info, "max_steps": 5})
        assert "What?" in agent.chat_completions[-1]["content"]
        assert "Steps Remaining: 5" in agent.chat_completions[-1]["content"]
        moves = [
            ("execute_bash", {"command": "cat documents/a/b.txt"}),
            ("", {}),
            ("str_replace_editor", {"command": "create", "path": "/testbed/answer.txt", "file_text": answer}),
            ("submit", {}),
        ]
        seen = []
        for name, arguments in moves:
            action = agent.update_from_model(Response(name, arguments)).action
            observation, reward, done, info = env.step(action)
            agent.update_from_env(observation, reward, done, {**info, "max_steps": 5})
            seen.append(observation)
        assert "content" in seen[0] and done and seen[-1] == "<<< Finished >>>"
        assert [tool["function"]["name"] for tool in agent.get_tools()] == ["str_replace_editor", "execute_bash", "submit"]
        assert env.compute_final_reward() == pytest.approx(expected)
        assert env.step("<function=execute_bash><parameter=command>pwd</parameter></function>")[0].endswith("/testbed\n")
    finally:
        env.close()
