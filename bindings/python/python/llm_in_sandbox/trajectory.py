"""`Trajectory` and `TrajectoryStep`: of the engine's episodes, and with the constructor of the reference package."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, overload

from ._reference.steps import TrajectoryStep
from ._trajectory import Trajectory as _EngineTrajectory

__all__ = ["Trajectory", "TrajectoryStep"]

Json = dict[str, Any]


class Trajectory(_EngineTrajectory):
    __doc__ = _EngineTrajectory.__doc__

    @overload
    def __init__(
        self, events: list[Json], *, answer: str | None = None, files: dict[str, bytes] | None = None
    ) -> None: ...

    @overload
    def __init__(
        self,
        *,
        problem_statement: str,
        steps: Iterable[TrajectoryStep | Json] = (),
        metadata: Json | None = None,
        reward_calc_time: float | None = None,
        test_output: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        events: list[Json] | None = None,
        *,
        answer: str | None = None,
        files: dict[str, bytes] | None = None,
        problem_statement: str | None = None,
        steps: Iterable[TrajectoryStep | Json] = (),
        metadata: Json | None = None,
        reward_calc_time: float | None = None,
        test_output: str | None = None,
    ) -> None:
        if problem_statement is None:
            if events is None:
                raise TypeError("Trajectory() needs `events`, or `problem_statement` and `steps`")
            super().__init__(events, answer=answer, files=files)
            steps = self._record["steps"]
        else:
            self.events: list[Json] = []
            self.answer, self.files, self._messages = answer, files or {}, []
            self._record = {"problem_statement": problem_statement, "metadata": {} if metadata is None else metadata}
        self._record["steps"] = [step if isinstance(step, TrajectoryStep) else TrajectoryStep(**step) for step in steps]
        self.reward_calc_time = reward_calc_time
        self.test_output = test_output

    @property
    def problem_statement(self) -> str:
        """The task as it was given."""
        return self.task

    @property
    def steps(self) -> list[Any]:
        """One step for each tool call: `thought`, `action`, `observation`, `metadata`, as attributes and as items."""
        steps: list[TrajectoryStep] = self._record["steps"]
        return steps

    @property
    def metadata(self) -> Json:
        """What is known about the whole episode."""
        metadata: Json = self._record["metadata"]
        return metadata

    def to_dict(self) -> Json:
        """The trajectory as in `trajectory.json`: `problem_statement`, `steps`, `metadata`."""
        steps = [step.to_dict() for step in self.steps]
        return {"problem_statement": self.task, "steps": steps, "metadata": self.metadata}

    def model_dump(self) -> Json:
        """All fields of the reference's class."""
        return {**self.to_dict(), "reward_calc_time": self.reward_calc_time, "test_output": self.test_output}

    def model_dump_json(self, indent: int | None = None) -> str:
        """The same as JSON."""
        return json.dumps(self.model_dump(), indent=indent, ensure_ascii=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trajectory):
            return NotImplemented
        return self.model_dump() == other.model_dump() and self.events == other.events

    __hash__ = None  # type: ignore[assignment]
