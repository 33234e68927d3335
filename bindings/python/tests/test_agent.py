"""Agents: functions as models, functions as tools, trajectories."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import pickle
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from conftest import added_to, held, missing

import llm_in_sandbox as lis
from llm_in_sandbox import Agent, AsyncSandbox, Sandbox, Trajectory
from llm_in_sandbox._tools import tool_of

Message = dict[str, Any]


def call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": f"I call {name}.", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def scripted(*replies: Any) -> Callable[[list[Message], list[Message]], Any]:
    """A model that says these one after the other, and then submits."""
    left = list(replies)

    def model(messages: list[Message], tools: list[Message]) -> Any:
        model.seen.append(messages)  # type: ignore[attr-defined]
        model.tools = tools  # type: ignore[attr-defined]
        return left.pop(0) if left else call("submit")

    model.seen = []  # type: ignore[attr-defined]
    return model


WRITE = call("execute_bash", command="mkdir -p /testbed/output; cat /testbed/input/* | tr a-z A-Z > /testbed/output/answer.txt; cat /testbed/output/answer.txt")


def test_a_function_as_a_model(tmp_path: Path) -> None:
    model = scripted(WRITE)
    (tmp_path / "b.txt").write_text("bcd")
    events: list[str] = []
    trajectory = Agent(model).run(
        "Upper case, please.",
        files={"a.txt": b"a", "b.txt": tmp_path / "b.txt"},
        on_event=lambda event: events.append(event["kind"]),
    )
    assert trajectory.outcome == "submitted" and trajectory.submitted
    assert trajectory.answer == "ABCD" and trajectory.files == {"answer.txt": b"ABCD"}
    assert events == ["started", "replied", "observed", "replied", "observed", "ended"]
    roles = [message["role"] for message in trajectory.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert "Upper case, please." in trajectory.messages[1]["content"]
    assert "ABCD" in trajectory.messages[3]["content"]
    seen = model.seen[1]  # type: ignore[attr-defined]
    assert seen[-1]["role"] == "tool" and seen[-1]["tool_call_id"] == seen[-2]["tool_calls"][0]["id"]
    names = [tool["function"]["name"] for tool in model.tools]  # type: ignore[attr-defined]
    assert names == ["execute_bash", "str_replace_editor", "submit"]
    assert trajectory.usage["turns"] == 2 and trajectory.usage["prompt_tokens"] > 0


def test_texts_are_replies_too() -> None:
    text = '<tool_call>\n{"name": "execute_bash", "arguments": {"command": "echo hi"}}\n</tool_call>'
    trajectory = Agent(scripted(text), max_turns=3).run("x")
    assert "hi" in trajectory.steps[0]["observation"]


def test_limits_end_an_episode() -> None:
    trajectory = Agent(scripted(*[call("execute_bash", command="true")] * 9), max_turns=2).run("x")
    assert trajectory.outcome == "max_turns" and not trajectory.submitted
    trajectory = Agent(scripted(*["no call"] * 9)).run("x")
    assert trajectory.outcome == "no_tool_calls"


def price(item: str, unit: Literal["euro", "cent"] = "euro", amount: int = 1) -> float:
    """Looks up a price.

    Args:
        item: what to look up
        amount (int): how many
    """
    if item == "nothing":
        raise KeyError(item)
    return 2.5 * amount


def where(sandbox: Sandbox, note: Annotated[str | None, "a note"] = None) -> dict[str, Any]:
    """Where the sandbox is."""
    return {"dir": sandbox.shell("pwd").stdout.strip(), "note": note}


def test_functions_as_tools() -> None:
    model = scripted(
        call("price", item="lamp", amount=2),
        call("price", item="nothing"),
        call("price"),
        call("price", item="lamp", color="red"),
        call("where"),
    )
    trajectory = Agent(model, tools=[price, where]).run("x")
    # Each result is followed by the number of steps that are left.
    seen = [step["observation"].rsplit("\n[", 1)[0] for step in trajectory.steps]
    assert seen[0] == "5.0"
    assert "KeyError" in seen[1] and "`item` is missing" in seen[2] and "`color`" in seen[3]
    assert json.loads(seen[4]) == {"dir": "/testbed", "note": None}
    spec = next(tool["function"] for tool in model.tools if tool["function"]["name"] == "price")  # type: ignore[attr-defined]
    assert spec["description"] == "Looks up a price."
    assert spec["parameters"]["properties"] == {
        "item": {"type": "string", "description": "what to look up"},
        "unit": {"enum": ["euro", "cent"], "default": "euro"},
        "amount": {"type": "integer", "default": 1, "description": "how many"},
    }
    assert spec["parameters"]["required"] == ["item"]
    assert list(tool_of(where).parameters["properties"]) == ["note"]


def test_tools_that_are_none() -> None:
    with pytest.raises(TypeError):
        Agent(scripted(), tools=[3])  # type: ignore[list-item]
    with pytest.raises(lis.UsageError, match="name"):
        Agent(scripted(), tools=[lambda: 1])
    with pytest.raises(lis.UsageError, match="same name"):
        Agent(scripted(), tools=[price, price])


def test_an_exception_in_a_model_is_the_cause() -> None:
    def broken(messages: list[Message], tools: list[Message]) -> str:
        raise RuntimeError("no more tokens")

    with pytest.raises(lis.ModelError, match="no more tokens") as caught:
        Agent(broken).run("x")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.trajectory is not None
    assert caught.value.trajectory.outcome == "infrastructure"
    for wrong in (3, {"choices": []}, {"tool_calls": [{}]}):
        with pytest.raises(lis.ModelError):
            Agent(lambda messages, tools, wrong=wrong: wrong).run("x")  # type: ignore[misc]


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(lis.ModelError, match="cannot reach"):
        Agent("m", base_url="http://127.0.0.1:9/v1", retries=0).run("x")


def test_a_sandbox_of_the_caller_stays(sandbox: Sandbox) -> None:
    Agent(scripted(call("execute_bash", command="echo 1 > /tmp/x"))).run("x", sandbox=sandbox)
    assert sandbox.read("/tmp/x") == b"1\n"
    with pytest.raises(TypeError):
        Agent(scripted()).run("x", sandbox=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Agent(scripted()).run(3)  # type: ignore[arg-type]


def test_a_closed_sandbox_is_refused() -> None:
    sandbox = Sandbox()
    sandbox.close()
    with pytest.raises(lis.SandboxClosed):
        Agent(scripted()).run("x", sandbox=sandbox)


def test_wrong_settings() -> None:
    with pytest.raises(lis.UsageError, match="set of prompts"):
        Agent(scripted(), prompt="poetry").run("x")
    with pytest.raises(lis.UsageError, match="tool format"):
        Agent(scripted(), tool_format="morse").run("x")
    with pytest.raises(lis.UsageError, match="not a name"):
        Agent(scripted()).run("x", files={"../x": b""})
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(Agent(scripted()))
    for name in ("max_time", "command_timeout"):
        for wrong in (-1, -0.5, float("nan"), float("inf")):
            with pytest.raises(lis.UsageError, match=name):
                Agent(scripted(), **{name: wrong})  # type: ignore[arg-type]
        for of_wrong_type in ("1", True, []):
            with pytest.raises(TypeError, match=name):
                Agent(scripted(), **{name: of_wrong_type})  # type: ignore[arg-type]


def test_asyncio() -> None:
    async def answer(messages: list[Message], tools: list[Message]) -> Message:
        await asyncio.sleep(0)
        return call("look") if messages[-1]["role"] == "user" else call("submit")

    async def look(sandbox: AsyncSandbox) -> str:
        """Looks."""
        return (await sandbox.run("echo seen")).stdout

    async def main() -> list[Trajectory]:
        agent = Agent(answer, tools=[look])
        return list(await asyncio.gather(*(agent.arun("x") for _ in range(4))))

    for trajectory in asyncio.run(main()):
        assert trajectory.submitted and trajectory.steps[0]["observation"].startswith("seen\n")

    def hidden(sandbox: AsyncSandbox) -> Any:
        """Returns a coroutine, although it is not a coroutine function."""
        return look(sandbox)

    class Tool:
        __name__ = "look"

        async def __call__(self, sandbox: AsyncSandbox) -> str:
            """Looks."""
            return await look(sandbox)

    bound = partial(look)
    bound.__name__ = "look"  # type: ignore[attr-defined]
    hidden.__name__ = "look"
    for tool in (hidden, Tool(), bound):
        trajectory = asyncio.run(Agent(answer, tools=[tool]).arun("x"))  # type: ignore[list-item]
        assert trajectory.steps[0]["observation"].startswith("seen\n"), tool
    with pytest.raises(lis.ModelError, match="arun"):
        Agent(answer).run("x")


@pytest.mark.parametrize("blocks", [False, True])
def test_cancelling_an_episode_leaves_nothing(blocks: bool) -> None:
    released = threading.Event()

    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        def in_a_thread(messages: list[Message], tools: list[Message]) -> Message:
            if messages[-1]["role"] == "user":
                return call("execute_bash", command="sleep 1000 & echo started")
            loop.call_soon_threadsafe(asked.set)
            released.wait(120)
            return call("submit")

        async def awaited(messages: list[Message], tools: list[Message]) -> Message:
            if messages[-1]["role"] == "user":
                return call("execute_bash", command="sleep 1000 & echo started")
            asked.set()
            await asyncio.sleep(1000)
            return call("submit")

        task = asyncio.create_task(Agent(in_a_thread if blocks else awaited).arun("x", files={"a": b"b"}))
        await asyncio.wait_for(asked.wait(), 60)
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 20
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with Sandbox():
        before = held()
        # The end of the loop does not wait for the function.
        asyncio.run(main())
        assert added_to(before) == set()
    released.set()


def test_functions_in_threads_have_the_callers_context() -> None:
    seen: ContextVar[str] = ContextVar("seen")

    def look() -> str:
        """Looks."""
        return seen.get()

    async def main() -> Trajectory:
        seen.set("context")
        together = threading.Barrier(64)

        def model(messages: list[Message], tools: list[Message]) -> Message:
            if messages[-1]["role"] == "user":
                # More than the threads of an event loop's pool.
                together.wait(120)
                return call("look")
            return call("submit")

        agent = Agent(model, tools=[look])
        return (await asyncio.gather(*(agent.arun("x") for _ in range(64))))[0]

    assert asyncio.run(main()).steps[0]["observation"].startswith("context\n")


def test_trajectories(tmp_path: Path) -> None:
    trajectory = Agent(scripted(WRITE)).run("<b>x</b>", files={"a": "a"})
    same = pickle.loads(pickle.dumps(trajectory))
    assert same.messages == trajectory.messages and same.files == trajectory.files
    trajectory.save(tmp_path / "events.jsonl")
    read = Trajectory.from_file(tmp_path / "events.jsonl")
    assert read.to_dict() == trajectory.to_dict() and read.outcome == "submitted"
    text = "one\u2028two\u0085three"
    Agent(scripted({"content": text})).run(text).save(tmp_path / "odd.jsonl")
    odd = Trajectory.from_file(tmp_path / "odd.jsonl")
    assert text in odd.messages[1]["content"] and odd.messages[2]["content"] == text
    (tmp_path / "bad").write_text("no\n")
    with pytest.raises(lis.UsageError):
        Trajectory.from_file(tmp_path / "bad")
    with pytest.raises(FileNotFoundError):
        Trajectory.from_file(tmp_path / "missing")
    atif = trajectory.to_atif()
    assert [step["source"] for step in atif["steps"]] == ["system", "user", "agent", "agent"]
    assert [step["step_id"] for step in atif["steps"]] == [1, 2, 3, 4]
    agent_step = atif["steps"][2]
    assert agent_step["tool_calls"][0]["function_name"] == "execute_bash"
    assert agent_step["observation"]["results"][0]["source_call_id"] == agent_step["tool_calls"][0]["tool_call_id"]
    assert atif["final_metrics"]["total_steps"] == 4
    json.dumps(atif)
    html = trajectory._repr_html_()
    assert "&lt;b&gt;x" in html and "<b>x</b></b>" not in html and "execute_bash" in html
    assert "submitted" in repr(trajectory)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="skip: the package atif needs Python 3.11")
def test_atif_is_accepted_by_its_own_validator() -> None:
    if importlib.util.find_spec("atif") is None:
        missing("atif", "the package atif is not installed")
    from atif import Trajectory as Atif

    odd = "\u202e\x00<script>\x1b[31m"
    malformed = call("execute_bash")
    malformed["tool_calls"][0]["function"]["arguments"] = "{"
    several = call("execute_bash", command=f"echo {odd!r}")
    several["tool_calls"] = [{**several["tool_calls"][0], "id": str(number)} for number in range(3)]
    several["reasoning_content"] = odd
    trajectories = [
        Agent(scripted(WRITE)).run("x", files={"a": "a"}),
        Agent(scripted(malformed, several, odd), max_turns=3).run(odd),
    ]

    def fails(messages: list[Message], tools: list[Message]) -> Any:
        if len(messages) > 3:
            raise RuntimeError("no more tokens")
        return WRITE

    with pytest.raises(lis.ModelError) as caught:
        Agent(fails).run("x")
    assert caught.value.trajectory is not None
    trajectories.append(caught.value.trajectory)
    for trajectory in trajectories:
        made = Atif.model_validate_json(json.dumps(trajectory.to_atif()))
        assert len(made.steps) == len(trajectory.to_atif()["steps"]) >= 3
    with pytest.raises(ValueError, match="steps"):
        Atif.model_validate({"schema_version": "ATIF-v1.7", "agent": made.agent.model_dump()})
