"""Rollouts of verl with our agent loop: verl's own worker, with a script in place of its inference server.

    pip install llm-in-sandbox 'verl==0.9.1' trl
    python verl_rollout.py
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from tiny_model import CALL, config, tokenizer
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.replica import TokenOutput

from llm_in_sandbox import grade

QUESTION = "What is 6 times 7?"

LOOPS = """
- name: llm_in_sandbox
  _target_: llm_in_sandbox.verl.SandboxAgentLoop
  reward: verl_rollout:reward
  max_turns: 8
  sandbox: {memory: 256M}
"""


def reward(row, answer):
    return grade.math(row["reward_model"]["ground_truth"], answer)


class ScriptedServer:
    """Stands for verl's client of its servers: token ids in, token ids with log-probabilities out."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.requests = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.requests.append(list(prompt_ids))
        turn = self.vocabulary.decode(prompt_ids).count("<|im_start|>assistant") - 1
        command = json.dumps({"command": "echo $((6 * 7)) > output/answer.txt"})
        script = [
            CALL.format(name="execute_bash", arguments=command),
            CALL.format(name="submit", arguments="{}"),
        ]
        text = script[min(turn, 1)] + self.vocabulary.eos_token
        ids = self.vocabulary(text, add_special_tokens=False)["input_ids"]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed")


def settings(directory, loops_text=LOOPS):
    """verl's configuration with a tiny model."""
    import verl.trainer

    vocabulary = tokenizer()
    vocabulary.save_pretrained(directory)
    config(vocabulary).save_pretrained(directory)
    loops = Path(directory, "loops.yaml")
    loops.write_text(loops_text)
    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={directory}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.prompt_length=8192",
                "actor_rollout_ref.rollout.response_length=4096",
                "actor_rollout_ref.rollout.calculate_log_probs=true",
                "actor_rollout_ref.rollout.agent.default_agent_loop=llm_in_sandbox",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
            ],
        )


def main(rows=2, server=ScriptedServer, loops=LOOPS):
    with tempfile.TemporaryDirectory() as directory:
        made = settings(directory, loops)
        worker = AgentLoopWorker(made, server(tokenizer()))
        prompt = [{"role": "user", "content": QUESTION}]
        batch = DataProto.from_dict(
            non_tensors={
                "raw_prompt": np.array([prompt] * rows + [None], dtype=object)[:-1],
                "reward_model": np.array([{"ground_truth": "42"}] * rows, dtype=object),
            }
        )
        return asyncio.run(worker.generate_sequences(batch))


if __name__ == "__main__":
    output = main()
    mask, rewards = output.batch["response_mask"], output.batch["rm_scores"].sum(-1)
    print("sampled tokens", mask.sum(-1).tolist(), "rewards", rewards.tolist())
    sys.exit(rewards.tolist() != [1.0, 1.0])
