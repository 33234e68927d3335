"""Graders that score as the official ones of the benchmarks do, in Rust.

>>> from llm_in_sandbox import grade
>>> grade.math("1/2", r"So the answer is \\boxed{0.5}.")
1.0
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _native

__all__ = [
    "ConstraintVerdict",
    "context",
    "ifbench",
    "ifbench_constraint",
    "judge_verdict",
    "math",
    "multiple_choice",
    "rouge_l",
]


class ConstraintVerdict(NamedTuple):
    """Whether a text follows constraints."""

    strict: bool
    """As it is."""
    loose: bool
    """In one of the variants that the official grader tries."""


def _grade(kind: str, **fields: Any) -> tuple[dict[str, Any], float]:
    for name, value in fields.items():
        if name != "kwargs" and not isinstance(value, str):
            raise TypeError(f"argument `{name}`: expected str, not {type(value).__name__}")
    text, score = _native.grade_line(kind, json.dumps(fields))
    return json.loads(text), score


def math(gold: str, answer: str) -> float:
    """Whether an answer equals the expected one mathematically, as Math-Verify decides: 1.0 or 0.0.

    >>> from llm_in_sandbox import grade
    >>> grade.math("$\\\\frac{1}{3}$", "1/3"), grade.math("3", "4")
    (1.0, 0.0)
    """
    return _grade("math", gold=gold, pred=answer)[1]


def multiple_choice(answer: str, letter: str) -> float:
    """Whether an answer chooses this letter: 1.0 or 0.0.

    >>> from llm_in_sandbox import grade
    >>> grade.multiple_choice("The answer is B.", "B")
    1.0
    """
    return _grade("choice", agent_answer=answer, ground_truth=letter)[1]


def ifbench(response: str, instruction_ids: Sequence[str], kwargs: Sequence[Mapping[str, Any]]) -> ConstraintVerdict:
    """Whether a response follows all constraints of an IFBench prompt.

    >>> from llm_in_sandbox import grade
    >>> grade.ifbench("1 and 2", ["count:numbers"], [{"N": 2}])
    ConstraintVerdict(strict=True, loose=True)
    """
    truth = {"instruction_id_list": list(instruction_ids), "kwargs": [dict(row) for row in kwargs]}
    strict, loose, _ = _native.check_constraints(json.dumps(truth), response)
    return ConstraintVerdict(strict, loose)


def ifbench_constraint(instruction_id: str, kwargs: Mapping[str, Any], response: str) -> ConstraintVerdict:
    """Whether a response follows one constraint."""
    verdict, _ = _grade(
        "ifbench", instruction_id=instruction_id, kwargs=dict(kwargs), response=response
    )
    return ConstraintVerdict(verdict["strict"], verdict["loose"])


def rouge_l(reference: str, prediction: str) -> float:
    """ROUGE-L, the F-measure of the longest common subsequence of words.

    >>> from llm_in_sandbox import grade
    >>> round(grade.rouge_l("the cat sat", "a cat sat down"), 3)
    0.571
    """
    return _grade("rouge", reference=reference, prediction=prediction)[1]


def context(domain: str, ground_truth: str, answer: str, qa_type: str | None = None) -> float:
    """The reward of a task over documents, by its domain."""
    fields = {"domain": domain, "ground_truth": ground_truth, "agent_answer": answer}
    if qa_type is not None:
        fields["qa_type"] = qa_type
    return _grade("context", **fields)[1]


def judge_verdict(response: str) -> str:
    """The verdict in the response of a judge model, such as "CORRECT"."""
    verdict: str = _grade("judge-verdict", response=response)[0]["verdict"]
    return verdict
