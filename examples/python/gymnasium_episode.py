"""An episode in a Gymnasium environment, with a policy that knows what to do.

    pip install llm-in-sandbox gymnasium
    python gymnasium_episode.py
"""

from llm_in_sandbox import grade
from llm_in_sandbox.gymnasium import SandboxEnv

ROWS = [{"problem_statement": "What is 6 times 7?", "ground_truth": "42"}]


def policy(messages, tools):
    """Stands for a model: the next message of a conversation."""
    if messages[-1]["role"] == "user":
        call = {"name": "execute_bash", "arguments": {"command": "echo $((6 * 7)) > output/answer.txt"}}
    else:
        call = {"name": "submit", "arguments": {}}
    return {"content": "", "tool_calls": [{"function": call}]}


def main():
    env = SandboxEnv(ROWS, lambda row, answer: grade.math(row["ground_truth"], answer), max_turns=10)
    observation, info = env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        action = policy(info["messages"], info["tools"])
        observation, reward, terminated, truncated, info = env.step(action)
        total, ended = total + reward, terminated or truncated
    env.close()
    return total, info["outcome"]


if __name__ == "__main__":
    print(*main())
