"""`TrajectoryStep`: one step of a trajectory, as an object with attributes and as a dictionary."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["TrajectoryStep"]


class TrajectoryStep(dict[str, Any]):
    """One step: what the model wrote, what it called, and what came of it.

    The fields are attributes, as in the reference package, and items, as in `trajectory.json`.

    >>> from llm_in_sandbox import TrajectoryStep
    >>> step = TrajectoryStep(thought="I look.", observation="a.txt")
    >>> step.thought, step["observation"]
    ('I look.', 'a.txt')
    """

    def __init__(
        self,
        thought: str = "",
        reasoning_content: str = "",
        action: dict[str, Any] | None = None,
        observation: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            thought=thought,
            reasoning_content=reasoning_content,
            action={} if action is None else action,
            observation=observation,
            metadata={} if metadata is None else metadata,
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """The step as in `trajectory.json`."""
        return dict(self)

    def model_dump(self) -> dict[str, Any]:
        """The step as in `trajectory.json`, under the name that pydantic has for it."""
        return dict(self)

    def model_dump_json(self, indent: int | None = None) -> str:
        """The step as JSON."""
        return json.dumps(self, indent=indent, ensure_ascii=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_step, (dict(self),))


def _step(fields: dict[str, Any]) -> TrajectoryStep:
    return TrajectoryStep(**fields)
