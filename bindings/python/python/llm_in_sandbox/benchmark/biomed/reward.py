"""Medicine and biology: the score of an answer."""

from llm_in_sandbox._reference.rewards import choice as compute_score

__all__ = ["compute_score"]
