"""An unedited client of OpenEnv plays episodes over WebSockets: synchronous, asynchronous, several at once."""

import asyncio
import os

from openenv.core import GenericEnvClient

URL = os.environ["SERVER_URL"]
ANSWER = "echo '\\boxed{42}' > /testbed/answer.txt"


def call(command):
    return {"tool_name": "execute_bash", "arguments": {"command": command}}


with GenericEnvClient(base_url=f"{URL}/openenv/math") as env:
    result = env.reset(row="a", episode_id="first")
    assert result.observation["tools"][0]["function"]["name"] == "execute_bash", result
    result = env.step(call("echo $((6 * 7))"))
    assert "42" in result.observation["messages"][-1]["content"] and not result.done, result
    wrong = '{"name": "execute_bash", "arguments": {"command": "echo 41 > /testbed/answer.txt"}}'
    env.step({"text": f"<tool_call>{wrong}</tool_call>"})
    result = env.step({"tool_calls": [{"function": {"name": "submit", "arguments": {}}}]})
    assert result.metadata["reason"] == "submitted" and env.state()["step_count"] == 3, result
    assert result.done and result.reward == 0.0, result
    state = env.state()
    assert state["episode_id"] == "first" and state["score"]["valid"], state
    # The same connection starts again.
    result = env.reset()
    assert not result.done and result.reward is None and env.state()["step_count"] == 0
    submit = {"function": {"name": "submit"}}
    write = {"function": {"name": "execute_bash", "arguments": {"command": ANSWER}}}
    result = env.step({"message": {"role": "assistant", "content": "So.", "tool_calls": [write, submit]}})
    assert result.done and result.reward == 1.0, result

# Errors reach the client, and the connection stays.
with GenericEnvClient(base_url=URL) as env:
    def refused(action, words):
        try:
            action()
        except RuntimeError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)

    refused(lambda: env.step(call("true")), "call reset first")
    refused(lambda: env.reset(), "name a task")
    refused(lambda: env.reset(task="none"), "math")
    refused(lambda: env.reset(task="math", colour="red"), "colour")
    env.reset(task="math", seed=3)
    refused(lambda: env.step({}), "VALIDATION_ERROR")
    refused(lambda: env.step({"type": "list_tools"}), "call_tool")
    assert not env.step({"type": "call_tool", **call("true")}).done


async def play(number):
    async with GenericEnvClient(base_url=URL) as env:
        await env.reset(task="math", seed=number)
        await env.step(call(f"n={number}"))
        result = await env.step(call("echo n is $n"))
        assert f"n is {number}\n" in result.observation["messages"][0]["content"], result
        await env.step(call(ANSWER))
        result = await env.step({"tool_name": "submit"})
        return result.reward


async def play_all():
    return await asyncio.gather(*(play(number) for number in range(8)))


rewards = asyncio.run(play_all())
assert rewards == [1.0] * 8, rewards
print("done")
