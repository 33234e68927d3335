"""Mathematics: the score of an answer."""

from llm_in_sandbox._reference.rewards import math as compute_score

__all__ = ["compute_score"]
