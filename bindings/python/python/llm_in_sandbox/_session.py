"""`Session`: an episode whose model is the caller, step by step."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any, NoReturn

from . import _native
from ._agent import Agent, Files, _Run
from ._messages import Json, function_reply, to_openai, tools_to_openai
from ._sandbox import Sandbox
from .errors import SandboxClosed, SandboxGone
from .trajectory import Trajectory

__all__ = ["Session"]


def _nobody(messages: list[Json], tools: list[Json]) -> NoReturn:
    raise AssertionError("the caller of the session answers")


class Session:
    """An episode that waits for its caller: `messages` and `tools` are the request to the model, `step` takes its response.

    The episode is that of `Agent`: its prompts, tools, limits and observations. It has ended when `trajectory` is set.

    Args:
        task: what the model is to do.
        files: input files, as for `Agent.run`.
        within: a sandbox to work in, which stays open; by default one is created, and closed with the session.
        options: arguments of `Agent` besides the model; `sandbox` has those of the created sandbox.

    Raises:
        InfrastructureError: the machine failed. The session is closed.

    >>> from llm_in_sandbox._session import Session
    >>> with Session("What is 6 times 7?") as session:
    ...     command = "mkdir -p output && echo $((6 * 7)) > output/answer.txt"
    ...     session.step({"tool_calls": [{"function": {"name": "execute_bash", "arguments": {"command": command}}}]})
    ...     session.step({"tool_calls": [{"function": {"name": "submit", "arguments": {}}}]})
    >>> session.trajectory.outcome, session.trajectory.answer
    ('submitted', '42')
    """

    def __init__(
        self, task: str, files: Files | None = None, within: Sandbox | None = None, **options: Any
    ) -> None:
        agent = Agent(_nobody, **options)
        self._run = _Run(agent, task, files, None, None)
        self.messages: list[Json] = []
        """The conversation so far, in the format of OpenAI's chat completions."""
        self.tools: list[Json] = []
        """The tools of the next response, in the same format; empty where a text format describes them."""
        self.trajectory: Trajectory | None = None
        """What happened, once the episode has ended."""
        self._number: int | None = None
        self._episode: _native.EpisodeHandle | None = None
        with ExitStack() as ends:
            used = ends.enter_context(Sandbox(**agent.sandbox_options)) if within is None else within
            self.sandbox: Sandbox = used
            """Where the episode works."""
            ends.enter_context(self._run)
            ends.callback(self._stop)
            self._episode = _native.EpisodeHandle(self.sandbox._handle, self._run.request())
            self._ends = ends.pop_all()
        self._guarded_advance()

    def step(self, message: str | Json) -> None:
        """Gives the next response: a text or a message as in chat completions. Returns when the model is to respond again,
        or the episode has ended.

        Raises:
            RuntimeError: the episode has ended already.
            InfrastructureError: the machine failed. The session is closed.
        """
        if self._number is None or self._episode is None:
            raise RuntimeError("the episode has ended")
        reply = json.dumps(function_reply(message))
        number, self._number = self._number, None
        self._episode.reply(number, reply, None)
        self._guarded_advance()

    def finish(self) -> Trajectory:
        """Ends the episode here, collects its files, and returns what happened.

        Raises:
            InfrastructureError: the machine failed. The session is closed.
        """
        if self.trajectory is None:
            if self._episode is None:
                raise RuntimeError("the session is closed")
            self._episode.cancel()
            while self.trajectory is None:
                self._number = None
                self._guarded_advance()
        return self.trajectory

    def close(self) -> None:
        """Ends the episode and closes the sandbox, if it is the session's own. Closing it again does nothing."""
        self._number = None
        # Each of its steps, even if another is interrupted.
        self._ends.close()

    def _stop(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.stop().wait()

    def _guarded_advance(self) -> None:
        try:
            self._advance()
        except SandboxClosed as error:
            # Not by this session: it was taken from the episode.
            self.close()
            raise SandboxGone(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _advance(self) -> None:
        """Handles what the episode sends, until it asks the model or ends."""
        assert self._episode is not None
        while self._run.handle(item := self._episode.next().wait()):
            kind, number, text = item
            if kind == "model":
                request: Json = json.loads(text)
                self.messages = [to_openai(message) for message in request["messages"]]
                self.tools = tools_to_openai(request["tools"])
                self._number = number
                return
            if kind == "tool":
                self._episode.reply(number, *self._run.answer(kind, text, self.sandbox))
        self.trajectory = self._run.result()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
