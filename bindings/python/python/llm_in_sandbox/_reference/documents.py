"""The prompt without a sandbox for questions about documents."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["create_prompt"]


def create_prompt(problem_data: dict[str, Any]) -> str:
    """The documents of a row, and then its question. They may be JSON text, an object or a list."""
    question: str = problem_data["problem_statement"]
    documents: Any = problem_data.get("documents") or problem_data.get("input_files") or {}
    if isinstance(documents, str):
        documents = json.loads(documents)
    texts: list[Any] = list(documents.values() if hasattr(documents, "values") else documents)
    if not texts:
        return question
    numbered = [f'<document number="{number}">\n{text}\n</document>' for number, text in enumerate(texts, 1)]
    return "\n\n".join([*numbered, "Answer this question with the documents above.", question])
