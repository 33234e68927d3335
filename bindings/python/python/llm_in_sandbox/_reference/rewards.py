"""Scores of answers with the graders of the engine, which give the verdicts of the reference's."""

from __future__ import annotations

from typing import Any

from .. import _native, grade
from ..errors import UsageError

__all__ = ["choice", "context", "instructions", "judged", "math", "text"]


def math(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """1 if the answer, of which the last `\\boxed{}` counts, equals the expected one as Math-Verify sees it, else 0."""
    return grade.math(ground_truth, agent_answer)


def choice(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """1 if the letter found in the answer is the expected one, else 0."""
    return grade.multiple_choice(agent_answer, ground_truth)


def instructions(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """1 if the answer follows all IFBench constraints of `ground_truth`, a JSON text, else 0."""
    try:
        return _native.check_constraints(ground_truth, agent_answer)[2]
    except UsageError:
        # A constraint that does not exist is not followed.
        return 0.0


def context(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """The score by the row's `domain` and `qa_type`, from 0 to 1. An unknown domain raises `ValueError`."""
    if not agent_answer or not ground_truth:
        return 0.0
    return grade.context(row["domain"], ground_truth, agent_answer, row.get("qa_type"))


def judged(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """0: a judge model has to score the answer. `llm-in-sandbox benchmark --judge-model` does it in one run."""
    return 0.0


def text(agent_answer: str, ground_truth: str, **row: Any) -> float:
    """1 if the answer equals the expected one up to case and outer white space, else 0."""
    answer, truth = agent_answer.strip().lower(), ground_truth.strip().lower()
    return 1.0 if answer and answer == truth else 0.0
