"""An environment for TRL's `GRPOTrainer(environment_factory=...)`. TRL itself is not imported.

    from functools import partial
    from llm_in_sandbox.trl import SandboxEnvironment

    def reward(row, answer):
        return grade.math(row["ground_truth"], answer)

    GRPOTrainer(model, train_dataset=rows, environment_factory=partial(SandboxEnvironment, reward))

Each row has `prompt`, as TRL needs it, and whatever the reward function reads; `files` are copied into the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._messages import Json
from ._sandbox import Sandbox
from ._session import Session
from .errors import InfrastructureError

__all__ = ["SandboxEnvironment"]


class SandboxEnvironment:
    """A sandbox for each rollout, with the tools of `Agent`. Its public methods are the tools that the model sees.

    The answer is the content of `answer.txt` in the output directory, `/testbed/output` by default. A rollout whose sandbox
    fails has the reward `None`, which TRL leaves out of the group: it is never scored as 0.

    Args:
        reward: a function of the row and the answer; the answer is empty where there is none.
        attempts: how often the creation of a sandbox is tried before training stops with `InfrastructureError`.
        options: arguments of `Agent` besides the model, such as `command_timeout`, `max_turns` and `sandbox`.
    """

    def __init__(
        self,
        reward: Callable[[Mapping[str, Any], str], float],
        *,
        attempts: int = 3,
        **options: Any,
    ) -> None:
        self._reward = reward
        self._attempts = attempts
        self._options = options
        self._session: Session | None = None
        self._row: Mapping[str, Any] = {}
        self._score: float | None = None
        self._graded = False
        self._failure: InfrastructureError | None = None

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of the current rollout, for reward functions; `None` once it is graded or has failed."""
        return None if self._session is None else self._session.sandbox

    @property
    def failure(self) -> InfrastructureError | None:
        """Why the sandbox of the current rollout failed, if it did. Reward functions of your own return `None` then."""
        return self._failure

    def reset(self, **row: Any) -> None:
        """Starts a rollout in a new sandbox. TRL calls it with the row of the dataset."""
        self._end()
        self._row, self._score, self._graded, self._failure = row, None, False, None
        for attempt in range(self._attempts):
            try:
                self._session = Session("the task is in the prompt", row.get("files"), **self._options)
                return
            except InfrastructureError:
                if attempt + 1 >= self._attempts:
                    raise

    def execute_bash(self, command: str) -> str:
        """Run a command in the computer's bash shell and get its exit code, stdout and stderr. It is one shell: directory,
        variables and functions carry on from call to call.

        Args:
            command: What bash evaluates; several lines are fine.
        """
        return self._call("execute_bash", {"command": command})

    def str_replace_editor(
        self,
        command: str,
        path: str,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """Look at and change files.

        Args:
            command: One of `view`, `create`, `str_replace` and `insert`.
            path: The file or directory, best as an absolute path.
            file_text: For `create`: everything the file is to hold.
            old_str: For `str_replace`: the text to be replaced, which must occur exactly once.
            new_str: For `str_replace`: the text that takes its place. For `insert`: the lines to be inserted.
            insert_line: For `insert`: the line after which to insert; 0 is the top of the file.
            view_range: For `view`: the first and the last line to show, counted from 1.
        """
        given = {
            "command": command,
            "path": path,
            "file_text": file_text,
            "old_str": old_str,
            "new_str": new_str,
            "insert_line": insert_line,
            "view_range": view_range,
        }
        return self._call(
            "str_replace_editor", {name: value for name, value in given.items() if value is not None}
        )

    def submit(self) -> str:
        """Declare the task done. Call it once, alone, when everything that was asked for is in place and checked."""
        return self._call("submit", {})

    def get_reward(self) -> float | None:
        """The reward of the rollout, or `None` if its sandbox failed. The sandbox is removed."""
        if self._graded:
            return self._score
        if self._session is not None and self._failure is None:
            try:
                answer = self._session.finish().answer
                self._score = float(self._reward(self._row, answer or ""))
            except InfrastructureError as error:
                self._failure = error
        self._graded = True
        self._end()
        return self._score

    def _call(self, name: str, arguments: Json) -> str:
        session = self._session
        if session is None:
            return "the sandbox is gone"
        if session.trajectory is not None:
            return f"the episode has ended: {session.trajectory.outcome}"
        call = {"function": {"name": name, "arguments": arguments}}
        try:
            session.step({"content": "", "tool_calls": [call]})
        except InfrastructureError as error:
            # TRL shows exceptions of tools to the model and goes on; `get_reward` tells it that there is no reward.
            self._failure = error
            self._end()
            return "the sandbox failed"
        if session.trajectory is not None:
            return f"the episode has ended: {session.trajectory.outcome}"
        content = session.messages[-1]["content"]
        return content if isinstance(content, str) else str(content)

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
