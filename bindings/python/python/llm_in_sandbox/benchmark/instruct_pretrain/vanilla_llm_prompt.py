"""Questions about documents: the prompt without a sandbox."""

from llm_in_sandbox._reference.documents import create_prompt

__all__ = ["create_prompt"]
