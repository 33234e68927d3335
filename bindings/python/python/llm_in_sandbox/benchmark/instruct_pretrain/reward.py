"""Training tasks over documents, by domain and kind of question: the score of an answer."""

from llm_in_sandbox._reference.rewards import context as compute_score

__all__ = ["compute_score"]
