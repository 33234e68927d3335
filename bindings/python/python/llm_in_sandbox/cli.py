"""The command line, and the reference's functions behind its own.

`main` runs the program `llm-in-sandbox`, which accepts the reference's commands and options.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from ._engine import find_program
from ._reference import yaml
from ._reference.json_types import is_array, is_object
from .agent import Agent, AgentArgs, get_logger
from .docker_runtime import DockerRuntime

__all__ = [
    "DEFAULT_DOCKER_IMAGE",
    "get_default_config_path",
    "load_prompt_config",
    "load_runtime_settings",
    "main",
    "run_agent_query",
]

DEFAULT_DOCKER_IMAGE = "cdx123/llm-in-sandbox:v0.1"
SETTINGS_ENV_VAR = "LLM_IN_SANDBOX_CONFIG"

_PROVIDERS = ("openai/", "anthropic/", "azure/", "hosted_vllm/")


def main() -> NoReturn:
    """Replaces this process by the program, with the arguments of this one."""
    program = find_program()
    os.execv(program, [program, *sys.argv[1:]])


def get_default_config_path() -> Path:
    """The file with the prompts for any task."""
    return Path(__file__).parent / "config" / "general.yaml"


def load_prompt_config(config_path: str | os.PathLike[str]) -> dict[str, Any]:
    """The prompts and directories in a YAML file."""
    config: dict[str, Any] = yaml.load(config_path)
    return config


def load_runtime_settings(explicit_path: str | None = None) -> tuple[dict[str, Any], Path | None]:
    """The first settings file that exists, and its path: the given one, that of `$LLM_IN_SANDBOX_CONFIG`, or a usual one."""
    named = [explicit_path, os.environ.get(SETTINGS_ENV_VAR)]
    usual = ["llm-in-sandbox.yaml", "llm_in_sandbox.yaml", "~/.llm-in-sandbox/config.yaml", "~/.llm-in-sandbox.yaml"]
    for name in [*named, *usual]:
        path = Path(name).expanduser() if name else None
        if path is not None and path.is_file():
            return yaml.load(path) or {}, path
    return {}, None


def run_agent_query(
    query: str,
    llm_name: str | None = None,
    docker_image: str = DEFAULT_DOCKER_IMAGE,
    max_steps: int = 100,
    temperature: float = 1.0,
    max_token_limit: int = 65536,
    max_tokens_per_call: int = 65536,
    input_dir: str | None = None,
    output_dir: str | None = None,
    llm_base_url: str | None = None,
    api_key: str | None = None,
    prompt_config: str | None = None,
    save_litellm_response: bool = False,
    extra_body: str | dict[str, Any] | None = None,
    settings: str | None = None,
) -> None:
    """Runs a task with a model in a sandbox, as the reference's command `run` does.

    Writes `trajectory.json` and `files/` to a directory of `output_dir` (default: `output`) named after the time.
    """
    found, _ = load_runtime_settings(settings)
    llm_name = llm_name or found.get("llm_name")
    llm_base_url = llm_base_url or found.get("llm_base_url") or os.environ.get("LLM_BASE_URL")
    api_key = api_key or found.get("api_key")
    prompt_config = prompt_config or found.get("prompt_config")
    if not llm_name:
        raise ValueError("llm_name is required. Provide --llm_name or set it in a settings YAML file.")
    if not llm_name.startswith(_PROVIDERS):
        llm_name = f"openai/{llm_name}"
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        if api_key:
            os.environ[variable] = str(api_key)
    config = load_prompt_config(prompt_config or get_default_config_path())
    directories = {
        "working_dir": config.get("working_dir", "/testbed"),
        "input_dir": config.get("input_dir", "/testbed/input"),
        "output_dir": config.get("output_dir", "/testbed/output"),
    }
    prompts = {name: config.get(name, "") for name in ("system_prompt", "instance_prompt")}
    for name, path in directories.items():
        prompts = {key: text.replace(f"{{{name}}}", path) for key, text in prompts.items()}
    results = Path(output_dir or "output", datetime.datetime.now().strftime("%Y%m%d_%H%M%S"))
    results.mkdir(parents=True, exist_ok=True)
    logger = get_logger("llm-in-sandbox")
    with DockerRuntime(docker_image, repo_path=directories["working_dir"], logger=logger) as runtime:
        if input_dir and os.path.isdir(input_dir):
            runtime.copy_dir_to_container(input_dir, directories["input_dir"])
        args = AgentArgs(
            **prompts,
            llm_name=llm_name,
            llm_base_url=llm_base_url,
            save_litellm_response=save_litellm_response,
            output_dir=str(results),
            extra_body=_extra_body(extra_body),
        )
        trajectory = Agent(args, logger).run(
            runtime,
            query,
            max_steps=max_steps,
            temperature=temperature,
            max_token_limit=max_token_limit,
            max_tokens_per_call=max_tokens_per_call,
        )
        try:
            runtime.copy_from_container(directories["output_dir"], str(results / "files"))
        except OSError as error:
            logger.warning(f"cannot copy the output: {error}")
    text = json.dumps(trajectory.to_dict(), indent=2, ensure_ascii=False)
    (results / "trajectory.json").write_text(text, encoding="utf-8")
    print(f"{len(trajectory.steps)} steps; results in {results}")
    answer = results / "files" / "answer.txt"
    if answer.is_file():
        print(answer.read_text(encoding="utf-8", errors="replace").strip())


def _extra_body(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """The body as a dictionary; the texts "true" and "false" in it become values, as command lines write them."""
    if not given:
        return None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise ValueError(f"Invalid extra_body JSON: {given}") from None
    body: dict[str, Any] = _with_booleans(given)
    return body


def _with_booleans(value: Any) -> Any:
    if is_object(value):
        return {name: _with_booleans(item) for name, item in value.items()}
    if is_array(value):
        return [_with_booleans(item) for item in value]
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


if __name__ == "__main__":
    main()
