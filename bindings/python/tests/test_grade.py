"""Graders."""

from __future__ import annotations

import pytest

from llm_in_sandbox import UsageError, grade


def test_graders() -> None:
    assert grade.math("1/2", r"\boxed{0.5}") == 1.0 and grade.math("1", "2") == 0.0
    assert grade.multiple_choice("B", "B") == 1.0 and grade.multiple_choice("A", "B") == 0.0
    assert grade.rouge_l("a b", "a b") == 1.0
    assert grade.ifbench("one 2 three", ["count:numbers"], [{"N": 2}]) == (False, False)
    assert grade.judge_verdict("CORRECT") == "CORRECT"


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        grade.math(1, "1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown constraint"):
        grade.ifbench("x", ["no:such"], [{}])
    with pytest.raises(UsageError):
        grade.context("no-such-domain", "a", "b")
