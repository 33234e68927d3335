"""Instructions with exact constraints: the score of an answer."""

from llm_in_sandbox._reference.rewards import instructions as compute_score

__all__ = ["compute_score"]
