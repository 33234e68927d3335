"""Tables of trajectories and benchmarks, with pandas itself."""

from __future__ import annotations

from typing import Any

from helpers import need

need("pandas")

import pandas  # noqa: E402

from llm_in_sandbox import Agent, benchmark  # noqa: E402


def model(messages: list[Any], tools: list[Any]) -> Any:
    if messages[-1]["role"] == "user":
        arguments = {"command": "echo '\\boxed{42}' > answer.txt; exit 3"}
        function = {"name": "execute_bash", "arguments": arguments}
    else:
        function = {"name": "submit", "arguments": {}}
    return {"content": "I act.", "tool_calls": [{"id": "1", "function": function}]}


def test_a_row_for_each_step() -> None:
    table = Agent(model).run("x").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table["tool"].tolist()[:1] == ["execute_bash"] and table["tool"].tolist()[-1] == "submit"
    assert table.loc[0, "exit_code"] == 3 and table.loc[0, "thought"] == "I act."
    assert table["turn"].tolist() == list(range(1, len(table) + 1))
    assert table["tool_seconds"].ge(0).all() and table["completion_tokens"].gt(0).all()


def test_a_row_for_each_attempt() -> None:
    rows = [{"id": name, "problem_statement": "What?", "ground_truth": truth} for name, truth in (("a", "42"), ("b", "43"))]
    table = benchmark("math", model, data=rows).to_pandas()
    assert table.set_index("id")["score"].to_dict() == {"a": 1.0, "b": 0.0}
    assert table["score"].mean() == 0.5
