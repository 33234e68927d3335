"""GRPO with TRL, each rollout in a sandbox of its own, on the processor.

The model is tiny and random, so what it says is scripted: every second rollout solves the problem. Losses, gradients and
updates are real.

    pip install llm-in-sandbox 'trl==1.16.0'
    python trl_grpo.py
"""

import json
import sys
import tempfile
from functools import partial

import torch
from datasets import Dataset
from tiny_model import CALL, config, tokenizer
from transformers import Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from llm_in_sandbox import grade
from llm_in_sandbox.trl import SandboxEnvironment

PROMPT = "What is 6 times 7? Write the number to /testbed/output/answer.txt, then submit."


class ScriptedModel(Qwen3ForCausalLM):
    """A random model whose responses are written down: a command, the submission, a last word."""

    vocabulary = None

    def generate(self, input_ids, **_):
        said = []
        for row, ids in enumerate(input_ids):
            results = self.vocabulary.decode(ids).count("<tool_response>")
            number = 42 if row % 2 == 0 else 41
            command = json.dumps({"command": f"echo {number} > /testbed/output/answer.txt"})
            script = [
                CALL.format(name="execute_bash", arguments=command),
                CALL.format(name="submit", arguments="{}"),
                "done",
            ]
            text = script[min(results, 2)] + self.vocabulary.eos_token
            said.append(self.vocabulary(text, add_special_tokens=False)["input_ids"])
        longest = max(map(len, said))
        pad = self.vocabulary.pad_token_id
        added = torch.tensor([ids + [pad] * (longest - len(ids)) for ids in said])
        return torch.cat([input_ids, added.to(input_ids.device)], dim=1)


def reward(row, answer):
    return grade.math(row["ground_truth"], answer)


def main(environment=SandboxEnvironment, steps=2):
    torch.manual_seed(0)
    vocabulary = tokenizer()
    model = ScriptedModel(config(vocabulary))
    model.vocabulary = vocabulary
    rows = [{"prompt": [{"role": "user", "content": PROMPT}], "ground_truth": "42"}] * steps
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model,
            args=GRPOConfig(
                output_dir=directory,
                max_steps=steps,
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=2048,
                max_tool_calling_iterations=4,
                learning_rate=1e-3,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=vocabulary,
            environment_factory=partial(environment, reward, sandbox={"memory": "256M"}),
        )
        trainer.train()
        return trainer


if __name__ == "__main__":
    history = [entry for entry in main().state.log_history if "reward" in entry]
    for entry in history:
        print({name: entry[name] for name in ("reward", "tools/call_frequency", "grad_norm")})
    sys.exit(len(history) != 2)
