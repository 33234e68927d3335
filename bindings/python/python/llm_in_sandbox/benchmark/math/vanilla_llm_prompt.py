"""Mathematics: the prompt without a sandbox."""

from __future__ import annotations

from typing import Any

__all__ = ["create_prompt"]


def create_prompt(problem_data: dict[str, Any]) -> str:
    """The problem statement, and in which form to answer."""
    return f"{problem_data['problem_statement']}\n\nThink step by step and end with the final answer in \\boxed{{}}."
