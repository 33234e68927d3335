"""`Agent`: a model that works in a sandbox until it submits."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Union

from . import _arguments, _native
from ._arguments import Path
from ._async_sandbox import AsyncSandbox
from ._event_loop import finished, in_daemon_thread
from ._handles import Unpicklable
from ._messages import Json, function_reply, to_openai, tools_to_openai
from ._model import Model, ModelSettings, settings
from ._sandbox import Sandbox
from ._scratch import Scratch
from ._tools import FunctionTool, failure, observation, tool_of
from ._trajectory import read_files
from .errors import InfrastructureError, ModelError, UsageError
from .trajectory import Trajectory

__all__ = ["Agent"]

#: Input files: by name, or a file or directory of this machine.
Files = Union[Mapping[str, Union[bytes, str, "os.PathLike[str]"]], Path]
Listener = Callable[[Json], None]


class Agent(Unpicklable):
    """A model with a sandbox: it runs commands, edits files, and submits when it is done.

    Args:
        model: the name of a model at the server `base_url`; `"local"` or a name of `llm-in-sandbox model list` for an
            embedded model; or a function `(messages, tools) -> str | dict` with messages and tools in the format of
            OpenAI's chat completions, which returns the next message. By default `$LLM_NAME`, else the embedded model.
        base_url: address of a server with OpenAI's chat completions or Anthropic's messages; `$LLM_BASE_URL` by default.
        api_key: its key; `$LLM_API_KEY`, `$OPENAI_API_KEY` or `$ANTHROPIC_API_KEY` by default. It stays in this process.
        tools: Python functions the model may call besides the built-in tools. Name, docstring and annotations are what
            it sees. A parameter annotated with `Sandbox` gets the sandbox. An exception becomes an observation.
        max_turns: most responses.
        max_tokens: most tokens of the whole conversation.
        max_response_tokens: most tokens of one response.
        max_time: most seconds in calls of the model and of tools.
        max_cost: most dollars, where the price of the model is known.
        command_timeout: most seconds of a command.
        prompt: the name of a built-in set of prompts, such as "general" or "math"; `prompt_config`, the text of one in
            YAML, replaces it.
        builtin_tools: `"all"`, `"without_execution"` or `"without_files"`.
        temperature, top_p, seed: how responses are sampled; the server decides by default.
        sandbox: the arguments of the `Sandbox` that each run creates.

    >>> from llm_in_sandbox import Agent
    >>> def model(messages, tools):
    ...     if messages[-1]["role"] == "user":
    ...         command = "mkdir -p output && echo $((6 * 7)) > output/answer.txt"
    ...         call = {"name": "execute_bash", "arguments": {"command": command}}
    ...     else:
    ...         call = {"name": "submit", "arguments": {}}
    ...     return {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": call}]}
    >>> trajectory = Agent(model).run("What is 6 times 7?")
    >>> trajectory.outcome, trajectory.answer
    ('submitted', '42')
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: Literal["openai", "anthropic"] | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        max_turns: int = 100,
        max_tokens: int = 65_536,
        max_response_tokens: int | None = None,
        max_time: float | None = None,
        max_cost: float | None = None,
        command_timeout: float = 120.0,
        prompt: str = "general",
        prompt_config: str | None = None,
        builtin_tools: Literal["all", "without_execution", "without_files"] = "all",
        tool_format: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        images: bool = False,
        compact: bool = True,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        retries: int = 5,
        sandbox: Mapping[str, Any] | None = None,
    ) -> None:
        self.model: ModelSettings = settings(
            model,
            base_url=base_url,
            api_key=api_key,
            provider=provider,
            headers=headers,
            extra_body=extra_body,
            retries=retries,
        )
        self.tools: list[FunctionTool] = [tool_of(tool) for tool in tools]
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise UsageError(f"two tools have the same name: {', '.join(sorted(names))}")
        self.sandbox_options: dict[str, Any] = dict(_arguments.mapping("sandbox", sandbox))
        sampling = {"temperature": temperature, "top_p": top_p, "seed": seed}
        limits: Json = {"turns": max_turns, "tokens": max_tokens, "cost": max_cost}
        per_call = 4096 if self.model.is_local else 65_536
        limits["tokens_per_call"] = max_response_tokens or per_call
        time = _arguments.seconds("max_time", max_time)
        if time is not None:
            limits["time"] = {"secs": int(time), "nanos": int(time % 1 * 1e9)}
        self._request: Json = {
            "prompt": prompt,
            "prompt_config": prompt_config,
            "limits": limits,
            "sampling": {name: value for name, value in sampling.items() if value is not None},
            "tool_format": tool_format,
            "command_timeout": _arguments.seconds("command_timeout", command_timeout),
            "builtin_tools": builtin_tools,
            "tools": [tool.spec for tool in self.tools],
            "compact": compact,
            "images": images,
        }

    def run(
        self,
        task: str,
        files: Files | None = None,
        sandbox: Sandbox | None = None,
        *,
        on_event: Listener | None = None,
        on_delta: Listener | None = None,
    ) -> Trajectory:
        """Gives the model a task, and returns what happened.

        Args:
            files: input files, which the model finds in its input directory: contents or paths by name, or one path of
                a file or directory.
            sandbox: a sandbox to work in, which stays open. By default one is created for the task.
            on_event: called with each event as it happens, a dictionary with `kind`.
            on_delta: called with each piece of a response, a dictionary with `kind` and `text`.

        Raises:
            ModelError: the server failed, or the function that stands for the model raised, which is the `__cause__`.
            InfrastructureError: the sandbox or the machine failed. Both have the trajectory so far as `trajectory`.
        """
        own = Sandbox(**self.sandbox_options) if sandbox is None else None
        used = own if own is not None else sandbox
        if not isinstance(used, Sandbox):
            raise TypeError(f"argument `sandbox`: expected Sandbox, not {type(used).__name__}")
        try:
            with _Run(self, task, files, on_event, on_delta) as run:
                episode = _native.EpisodeHandle(used._handle, run.request())
                try:
                    while run.handle(item := episode.next().wait()):
                        if item[0] in ("model", "tool"):
                            episode.reply(item[1], *run.answer(item[0], item[2], used))
                finally:
                    # After an exception, such as KeyboardInterrupt, it still runs.
                    episode.stop().wait()
                return run.result()
        finally:
            if own is not None:
                own.close()

    async def arun(
        self,
        task: str,
        files: Files | None = None,
        sandbox: AsyncSandbox | None = None,
        *,
        on_event: Listener | None = None,
        on_delta: Listener | None = None,
    ) -> Trajectory:
        """The same for asyncio. Functions that are not coroutine functions are called in daemon threads. Cancelling the task
        ends the run; it does not wait for such a function."""
        own = await AsyncSandbox.create(**self.sandbox_options) if sandbox is None else None
        used = own if own is not None else sandbox
        if not isinstance(used, AsyncSandbox):
            raise TypeError(f"argument `sandbox`: expected AsyncSandbox, not {type(used).__name__}")
        try:
            with _Run(self, task, files, on_event, on_delta) as run:
                request = await in_daemon_thread(run.request)
                episode = _native.EpisodeHandle(used._handle, request)
                try:
                    while run.handle(item := await finished(episode.next())):
                        if item[0] in ("model", "tool"):
                            reply = await run.answer_async(item[0], item[2], used)
                            episode.reply(item[1], *reply)
                finally:
                    await finished(episode.stop())
                return run.result()
        finally:
            if own is not None:
                await asyncio.shield(own.close())


class _Run:
    """One run: its input and output on this machine, its events, and the calls of Python functions."""

    def __init__(
        self,
        agent: Agent,
        task: str,
        files: Files | None,
        on_event: Listener | None,
        on_delta: Listener | None,
    ) -> None:
        if not isinstance(task, str):
            raise TypeError(f"argument `task`: expected str, not {type(task).__name__}")
        if files is not None and not isinstance(files, (Mapping, str, os.PathLike)):
            raise TypeError(f"argument `files`: expected a mapping or a path, not {type(files).__name__}")
        self.agent = agent
        self.task = task
        self.files = files
        self.on_event = on_event
        self.on_delta = on_delta
        self.events: list[Json] = []
        self.ended: Json | None = None
        self.error: BaseException | None = None
        """What the function that stands for the model raised."""

    def __enter__(self) -> _Run:
        self.scratch = Scratch().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.scratch.__exit__(None, None, None)

    @property
    def output(self) -> str:
        return self.scratch.file("output")

    def request(self) -> str:
        """The episode as `_native` takes it."""
        model = self.agent.model
        if model.is_local:
            from ._local_model import local_model

            served = local_model(model.name)
            # The server constrains the model to its own format.
            described = model.request(served.base_url, served.api_key)
            described["name"] = served.served_name
            tool_format: str | None = "native"
        else:
            described, tool_format = model.request(), self.agent._request["tool_format"]
        request: Json = {
            **self.agent._request,
            "tool_format": tool_format,
            "task": self.task,
            "model": described,
            "input": self._input(),
            "output": self.output,
            "stream": self.on_delta is not None,
            "settings": {"model": model.name, "base_url": model.base_url},
        }
        return json.dumps(request)

    def _input(self) -> str | None:
        """The path of the input on this machine."""
        files = self.files
        if files is None:
            return None
        if isinstance(files, (str, os.PathLike)):
            return os.path.abspath(os.fspath(files))
        directory = self.scratch.file("input")
        os.mkdir(directory)
        for name, content in files.items():
            path = os.path.normpath(os.path.join(directory, name))
            if not path.startswith(directory + os.sep):
                raise UsageError(f"argument `files`: `{name}` is not a name of a file")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if isinstance(content, os.PathLike):
                source = os.fspath(content)
                if os.path.isdir(source):
                    shutil.copytree(source, path, symlinks=True)
                else:
                    shutil.copy2(source, path)
                continue
            with open(path, "wb") as file:
                file.write(_arguments.data(content))
        return directory

    def handle(self, item: tuple[str, int, str]) -> bool:
        """Takes an item of the episode; returns whether there are more."""
        kind, _, text = item
        if kind == "event":
            event: Json = json.loads(text)
            self.events.append(event)
            if self.on_event is not None:
                self.on_event(event)
        elif kind == "delta" and self.on_delta is not None:
            self.on_delta(json.loads(text))
        elif kind == "ended":
            self.ended = json.loads(text)
            return False
        return True

    def answer(self, kind: str, text: str, sandbox: Sandbox) -> tuple[str | None, str | None]:
        """Calls the function that is asked for: the reply as JSON, or the error for the model."""
        request: Json = json.loads(text)
        if kind == "model":
            try:
                return self._model_reply(self._no_coroutine(self._call_model(request)))
            except Exception as error:
                return self._model_failed(error)
        try:
            tool, arguments = self._tool_call(request, sandbox)
            return json.dumps(observation(self._no_coroutine(tool.function(**arguments)))), None
        except Exception as error:
            return None, failure(error)

    async def answer_async(
        self, kind: str, text: str, sandbox: AsyncSandbox
    ) -> tuple[str | None, str | None]:
        """The same; coroutines are awaited, and other functions called in threads."""
        request: Json = json.loads(text)
        if kind == "model":
            try:
                function = self.agent.model.function
                if inspect.iscoroutinefunction(function):
                    value = await self._call_model(request)
                else:
                    value = await _in_thread(self._call_model, request)
                return self._model_reply(value)
            except Exception as error:
                return self._model_failed(error)
        try:
            tool, arguments = self._tool_call(request, sandbox)
            if inspect.iscoroutinefunction(tool.function):
                value = await tool.function(**arguments)
            else:
                value = await _in_thread(tool.function, **arguments)
            return json.dumps(observation(value)), None
        except Exception as error:
            return None, failure(error)

    def _call_model(self, request: Json) -> Any:
        function = self.agent.model.function
        assert function is not None
        messages = [to_openai(message) for message in request["messages"]]
        return function(messages, tools_to_openai(request["tools"]))

    def _model_reply(self, value: object) -> tuple[str | None, str | None]:
        return json.dumps(function_reply(value)), None

    def _model_failed(self, error: Exception) -> tuple[str | None, str | None]:
        self.error = error
        return None, failure(error)

    def _tool_call(self, request: Json, sandbox: object) -> tuple[FunctionTool, dict[str, Any]]:
        tool = next(tool for tool in self.agent.tools if tool.name == request["name"])
        return tool, tool.bind(request["arguments"], sandbox)

    @staticmethod
    def _no_coroutine(value: Any) -> Any:
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError("a coroutine function needs `Agent.arun`")
        return value

    def result(self) -> Trajectory:
        """The trajectory, unless the infrastructure failed."""
        assert self.ended is not None
        trajectory = Trajectory(
            self.events, answer=self.ended["answer"], files=read_files(self.output)
        )
        if trajectory.outcome != "infrastructure":
            return trajectory
        ended = self.ended["ended"]
        cause = trajectory.cause or "unknown"
        of_model = str(ended.get("fault", "")).startswith("model_")
        made = (ModelError if of_model else InfrastructureError)(cause)
        made.trajectory = trajectory
        raise made from self.error


async def _in_thread(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Calls a function in a thread, and awaits the result if it is awaitable: not every coroutine function looks like one."""
    value = await in_daemon_thread(partial(function, *arguments, **keywords))
    return await value if inspect.isawaitable(value) else value
