"""Questions about long documents: the score of an answer."""

from llm_in_sandbox._reference.rewards import judged as compute_score

__all__ = ["compute_score"]
