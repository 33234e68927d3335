"""Shows an episode as plain text: on standard output, or kept for a log file."""

from __future__ import annotations

import io
import sys

__all__ = ["Console"]


class Console:
    """Prints titled sections. A quiet one keeps them instead."""

    def __init__(self, *, quiet: bool) -> None:
        self._kept = io.StringIO() if quiet else None

    def section(self, title: str, text: str, limit: int) -> None:
        """Prints a text below its title, at most `limit` characters of it."""
        self.print(f"--- {title} ---\n{text[:limit]}{'...' if len(text) > limit else ''}")

    def print(self, text: str = "") -> None:
        """Prints a line."""
        print(text, file=sys.stdout if self._kept is None else self._kept)

    def export_text(self) -> str:
        """What a quiet console kept; empty for others."""
        return "" if self._kept is None else self._kept.getvalue()
