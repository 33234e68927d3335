"""The reference's agent: a loop that asks a server for tool calls and executes them in a runtime.

Each step is one request and one tool call; only the first call of a response is executed. Commands are separate
processes, so the model has no lasting shell. The engine's own agent is `llm_in_sandbox.Agent(model)`.
"""

from __future__ import annotations

import copy
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..action import Action
from ..observation import Observation
from ..tools import execute_bash_tool, str_replace_editor_tool, submit_tool
from ..trajectory import Trajectory
from . import budget, chat, editor
from .console import Console
from .logs import agent_logger
from .responses import Record
from .steps import TrajectoryStep

__all__ = ["AgentArgs", "ReferenceAgent", "Runtime"]

_TOOLS = [str_replace_editor_tool, execute_bash_tool, submit_tool]
#: Seconds until a request without an answer has failed.
_HTTP_TIMEOUT = 1200
#: Longest wait before a request is repeated, in seconds.
_LONGEST_WAIT = 60.0


class Runtime(editor.Runner, Protocol):
    """What actions need of a runtime; `DockerRuntime` has it, and any other object may."""

    def demux_run(self, code: str) -> tuple[str, str, str]:
        """Runs a command; returns standard output, standard error, and the exit code or an error."""
        ...


@dataclass
class AgentArgs:
    """Configuration of an agent for `Agent(args, logger)`.

    `llm_name` may start with a provider: `openai/`, `hosted_vllm/` or `anthropic/`. `quiet` keeps what would be printed
    for `Agent.get_console_output`.
    """

    system_prompt: str
    instance_prompt: str
    llm_name: str
    llm_base_url: str | None = None
    max_retries: int = 5
    save_litellm_response: bool = False
    output_dir: str | None = None
    extra_body: dict[str, Any] | None = None
    quiet: bool = False


class ReferenceAgent:
    """`Agent` as the reference package has it."""

    def _configure(self, args: AgentArgs, logger: Any = None) -> None:
        self.args = args
        self.llm_name = args.llm_name
        self.quiet = args.quiet
        self.console = Console(quiet=args.quiet)
        self.logger = agent_logger("Agent") if logger is None else logger
        if args.quiet:
            self.logger.setLevel("WARNING")
        self.llm_base_url = args.llm_base_url
        if self.llm_base_url is None and ("openai/" in self.llm_name or "hosted_vllm" in self.llm_name):
            self.llm_base_url = os.environ.get("LLM_BASE_URL", "http://localhost:8000/v1")
        self.system_prompt_template = args.system_prompt
        self.instance_prompt_template = args.instance_prompt
        self.max_retries = args.max_retries
        self.extra_body = args.extra_body
        self.save_litellm_response = args.save_litellm_response
        self.output_dir = args.output_dir
        self.llm_call_count = 0
        self.reset()
        self.logger.info(f"Agent with the model {self.llm_name} at {self.llm_base_url or 'its default server'}")

    def reset(self) -> None:
        """Forgets the steps and messages of earlier runs."""
        self.trajectory_steps: list[TrajectoryStep] = []
        self.history: list[dict[str, Any]] = []

    def get_console_output(self) -> str:
        """What a quiet agent would have printed; empty for others."""
        return self.console.export_text()

    def _run_reference(
        self,
        runtime: Runtime,
        problem_statement: str,
        max_steps: int = 30,
        max_token_limit: int = 65536,
        max_tokens_per_call: int = 65536,
        temperature: float = 1.0,
    ) -> Trajectory:
        self.reset()
        self.logger.info(
            f"Starting: at most {max_steps} steps, {max_token_limit} tokens of conversation,"
            f" {max_tokens_per_call} tokens per response, temperature {temperature}"
        )
        self._start(problem_statement)
        step = 0
        while step < max_steps:
            self.console.print(f"\n=== Step {step + 1}/{max_steps} ===")
            self.history[-1]["content"] += f"\nSteps Remaining: {max_steps - step}"
            try:
                response, exec_time = self.model_query(
                    messages=self.history.copy(),
                    temperature=temperature,
                    max_token_limit=max_token_limit,
                    max_tokens_per_call=max_tokens_per_call,
                )
            except Exception as error:
                self.logger.error(f"the model gave no response: {error}")
                break
            step += 1
            if self._step(runtime, response, {"step": step, "exec_time": exec_time}):
                self.logger.info("the model submitted its answer")
                break
        return Trajectory(
            problem_statement=problem_statement, steps=self.trajectory_steps, metadata={"total_steps": step}
        )

    def _start(self, problem_statement: str) -> None:
        system = self.system_prompt_template.format(command_docs="", demo="")
        user = problem_statement
        if self.instance_prompt_template:
            user = self.instance_prompt_template.format(problem_statement=problem_statement)
        self.history = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        self.console.section("SYSTEM PROMPT", system, 2000)
        self.console.section("USER PROMPT", user, 2000)

    def _step(self, runtime: Runtime, response: Any, metadata: dict[str, Any]) -> bool:
        """Executes the response's action and records it. Returns whether the episode is over."""
        reasoning = _reasoning(response.choices[0].message)
        thought, action, tool_call_id = self.parse_response(response)
        for title, text in (("REASONING", reasoning), ("THOUGHT", thought)):
            if text:
                self.console.section(title, text, 2000)
        called = f"{action.function_name}\n{json.dumps(action.parameters, indent=2, ensure_ascii=False)}"
        self.console.section("ACTION", called, 300)
        observation = self._execute_action(action, runtime)
        self.console.section("OBSERVATION", observation, 800)
        taken = TrajectoryStep(
            thought=thought,
            reasoning_content=reasoning,
            action=action.to_dict(),
            observation=observation,
            metadata=metadata,
        )
        self.trajectory_steps.append(taken)
        self.history.append(_assistant(response.choices[0].message))
        if action.function_name and tool_call_id:
            self.history.append({"role": "tool", "tool_call_id": tool_call_id, "content": observation})
        elif not action.function_name:
            self.history.append({"role": "user", "content": observation})
        return action.function_name == "submit"

    def parse_response(self, response: Any) -> tuple[str, Action, str | None]:
        """Returns the text of a response, its first tool call, and the call's id.

        Without a call, or with arguments that are not JSON, the action is empty and the id is `None`.
        """
        message = response.choices[0].message
        thought = message.content or ""
        try:
            call = message.tool_calls[0]
            action = Action(call.function.name, json.loads(call.function.arguments))
        except (TypeError, IndexError, AttributeError, ValueError):
            return thought, Action("", {}), None
        return thought, action, call.id

    def _count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """An estimate: four characters per token. (The reference counts with `litellm` where it can.)"""
        return sum(len(str(message.get("content", ""))) for message in messages) // 4

    def model_query(
        self,
        messages: list[dict[str, Any]],
        temperature: float = 1.0,
        max_tokens_per_call: int = 65536,
        max_token_limit: int = 65536,
    ) -> tuple[Any, float]:
        """Asks the model for its next message. Returns the response, in OpenAI's form, and the seconds it took.

        A request that fails is repeated up to `max_retries` times, one that did not fit into the model's context with a
        smaller limit of tokens. Raises `ValueError` where the conversation is longer than `max_token_limit`.
        """
        tokens = self._count_tokens(messages)
        if tokens > max_token_limit:
            raise ValueError(f"Total tokens: {tokens} > {max_token_limit}")
        target = chat.server(self.llm_name, self.llm_base_url)
        sampled = "o3" not in self.llm_name and "o4" not in self.llm_name
        kwargs: dict[str, Any] = {"temperature": temperature} if sampled else {}
        extra: dict[str, Any] = {"extra_body": self.extra_body} if self.extra_body else {}
        messages = copy.deepcopy(messages)
        limit, failures, started = max_tokens_per_call, 0, time.time()
        while True:
            try:
                response = chat.completion(
                    target, messages, tools=_TOOLS, max_tokens=limit, timeout=_HTTP_TIMEOUT, **extra, **kwargs
                )
                break
            except chat.ChatError as error:
                self.logger.error(f"request {failures + 1} failed: {error}")
                if budget.too_many_tokens(str(error)):
                    smaller = budget.smaller_limit(str(error), limit)
                    if smaller is None:
                        raise
                    limit = smaller
                    self.logger.warning(f"trying again with at most {limit} tokens of output")
                    continue
                failures += 1
                if failures >= self.max_retries or error.status in (401, 403, 404):
                    raise
                time.sleep(_wait(error, failures))
        if self.save_litellm_response and self.output_dir:
            self._save_exchange(self.output_dir, messages, response, extra, kwargs)
        return response, time.time() - started

    def _save_exchange(
        self, directory: str, messages: list[Any], response: Record, extra: dict[str, Any], kwargs: dict[str, Any]
    ) -> None:
        """Writes `request_NNN.json` and `response_NNN.json`. A failure is logged, and the episode continues."""
        self.llm_call_count += 1
        number = self.llm_call_count
        request = {"call_id": number, "model": self.llm_name, "api_base": self.llm_base_url, "messages": messages}
        request |= {"extra_params": extra, "kwargs": kwargs}
        answer = {"call_id": number, "response": response.model_dump()}
        try:
            os.makedirs(directory, exist_ok=True)
            for name, content in (("request", request), ("response", answer)):
                text = json.dumps(content, indent=2, ensure_ascii=False)
                Path(directory, f"{name}_{number:03d}.json").write_text(text, encoding="utf-8")
        except OSError as error:
            self.logger.warning(f"cannot save the request: {error}")

    def _execute_action(self, action: Action, runtime: Runtime) -> str:
        """Executes an action and returns the text for the model. Needs no other state of the agent."""
        name, parameters = action.function_name, action.parameters
        if not name or not isinstance(parameters, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            # Malformed arguments show the tool's own format, an absent name asks for a call.
            return str(Observation("", 0, action))
        if name == "execute_bash":
            command = parameters.get("command", "")
            if not command:
                return "Error: No command provided."
            stdout, stderr, status = runtime.demux_run(command)
            return str(Observation(stdout + stderr, status, action, stdout=stdout, stderr=stderr))
        if name == "str_replace_editor":
            return str(Observation(self._execute_str_replace_editor(action, runtime), 0, action))
        if name == "submit":
            return str(Observation("", 0, action))
        return f"Unknown action: {name}"

    def _execute_str_replace_editor(self, action: Action, runtime: editor.Runner) -> str:
        return editor.edit(runtime, action.parameters)


def _reasoning(message: Any) -> str:
    fields: Any = getattr(message, "provider_specific_fields", None) or {}
    for name in ("thinking", "reasoning_content", "reasoning"):
        text: Any = fields.get(name) or getattr(message, name, None)
        if isinstance(text, str) and text:
            return text
    return ""


def _assistant(message: Any) -> dict[str, Any]:
    """The message for the conversation, with the one call that was executed."""
    fields: dict[str, Any]
    if hasattr(message, "model_dump"):
        fields = message.model_dump(exclude_none=True)
    else:
        fields = message.to_dict() if hasattr(message, "to_dict") else dict(message)
    if fields.get("tool_calls"):
        fields["tool_calls"] = fields["tool_calls"][:1]
    # Servers want the field even where there is no text.
    fields.setdefault("content", "")
    return fields


def _wait(error: chat.ChatError, failures: int) -> float:
    if error.retry_after is not None:
        return min(error.retry_after, _LONGEST_WAIT)
    first = 5.0 if error.status == 429 else 0.5
    return min(first * 2.0 ** (failures - 1), _LONGEST_WAIT)
