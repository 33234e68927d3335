"""An Inspect task whose model works in our sandboxes. The model here is a script.

    pip install llm-in-sandbox inspect-ai
    python inspect_task.py
    inspect eval inspect_task.py --model openai/gpt-5          # with a real one
"""

import tempfile

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from llm_in_sandbox.inspect_ai import SandboxConfig


@scorer(metrics=[accuracy()])
def answer_file():
    """Scores the file that the model was to write."""

    async def score(state, target):
        try:
            answer = (await sandbox().read_file("answer.txt")).strip()
        except FileNotFoundError:
            answer = ""
        return Score(value=float(answer == target.text), answer=answer)

    return score


@task
def words():
    return Task(
        dataset=[
            Sample(
                input="How many words are in text.txt? Write the number to answer.txt.",
                target="3",
                files={"text.txt": "one two three"},
            )
        ],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=answer_file(),
        sandbox=SandboxEnvironmentSpec("llm_in_sandbox", SandboxConfig(memory="512M")),
    )


def script():
    """Stands for a model."""
    command = {"command": "wc -w < text.txt > answer.txt"}
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", command),
        ModelOutput.from_content("mockllm/model", "done"),
    ]
    for output in outputs:
        # Inspect would count the tokens itself, with an encoding that it downloads.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=outputs)


def main(logs, tasks=words, **options):
    return eval(tasks(), model=script(), log_dir=logs, display="none", **options)[0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        log = main(directory)
        print(log.status, log.results.scores[0].metrics["accuracy"].value)
