"""The reference's benchmark runner: one model, one task, a score for each problem.

A task is a folder with `config.yaml`, `reward.py`, optionally `vanilla_llm_prompt.py` and data, in this package or given
by its path. The engine's own runner (`llm-in-sandbox benchmark`, `llm_in_sandbox.benchmark`) resumes, repeats and
compares runs; this one keeps the reference's arguments, files and results.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from .._messages import json_lines
from .._reference import budget, chat, yaml

__all__ = [
    "BenchmarkResult",
    "create_agent_runner",
    "load_dataset_from_config",
    "load_prompt_function",
    "load_reward_function",
    "load_task_config",
    "run_benchmark",
    "run_single_problem",
    "run_vanilla_llm",
]

_TASKS = Path(__file__).parent
#: Requests of a problem without a sandbox, until one succeeds.
_TRIES = 5
#: Seconds until a request without an answer has failed.
_HTTP_TIMEOUT = 1800


@dataclass
class BenchmarkResult:
    """The score of one problem. `error` says why there is no answer."""

    problem_id: str
    score: float
    agent_answer: str
    ground_truth: str
    problem_statement: str = ""
    trajectory: list[Any] = field(default_factory=list[Any])
    error: str | None = None


@dataclass
class _Answer:
    """What a model answered, before it is scored."""

    text: str = ""
    trajectory: list[Any] = field(default_factory=list[Any])
    console: str = ""
    error: str | None = None


def load_task_config(task_name: str) -> dict[str, Any]:
    """The configuration of a task: dataset, prompts and directories. `task_name` may be the path of a folder."""
    path = _TASKS / task_name / "config.yaml"
    if not path.exists():
        raise FileNotFoundError(f"Task config not found: {path}")
    config: dict[str, Any] = yaml.load(path)
    return config


def load_reward_function(task_name: str) -> Callable[..., float]:
    """`compute_score(agent_answer, ground_truth, **row)` of a task."""
    path = _TASKS / task_name / "reward.py"
    if not path.exists():
        raise FileNotFoundError(f"Reward function not found: {path}")
    function = _function(path, "reward", "compute_score")
    if function is None:
        raise AttributeError("reward.py must define compute_score function")
    return function


def load_prompt_function(task_name: str) -> Callable[[dict[str, Any]], str]:
    """`create_prompt(row)` of a task, for the mode without a sandbox; by default the problem statement."""
    path = _TASKS / task_name / "vanilla_llm_prompt.py"
    function = _function(path, "vanilla_llm_prompt", "create_prompt") if path.exists() else None
    return function or (lambda row: row["problem_statement"])


def _function(path: Path, module_name: str, name: str) -> Callable[..., Any] | None:
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name, None)


def load_dataset_from_config(task_config: dict[str, Any]) -> Any:
    """The rows of a task: a `datasets.Dataset` where that package is installed, else a list of dictionaries.

    Without it only local files can be read (`dataset: json`): a JSON array, or one object per line.
    """
    name = task_config["dataset"]
    local = None
    if name == "json" and task_config.get("data_files"):
        local = str(_TASKS / task_config["data_files"])
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        if local is not None:
            return _rows(Path(local))
        raise ImportError(
            f"the dataset `{name}` is on the Hugging Face hub: install the package `datasets`, or run"
            " `llm-in-sandbox benchmark`, which downloads it itself"
        ) from None
    if local is not None:
        return datasets.load_dataset("json", data_files=local, split="train")
    return datasets.load_dataset(name, task_config.get("config"), split=task_config.get("split", "test"))


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        rows: list[dict[str, Any]] = json.loads(text)
        return rows
    return json_lines(text)


def create_agent_runner(
    docker_image: str,
    llm_name: str,
    llm_base_url: str | None,
    max_steps: int,
    temperature: float,
    max_token_limit: int,
    max_tokens_per_call: int,
    extra_body: dict[str, Any] | None = None,
    task_system_prompt: str | None = None,
    task_instance_prompt: str | None = None,
    save_litellm_response: bool = False,
    working_dir: str | None = None,
    input_dir: str | None = None,
    output_dir: str | None = None,
    stop: threading.Event | None = None,
    **others: Any,
) -> Callable[..., tuple[str, Any, str]]:
    """A function `(query, input_files, local_output_dir) -> (answer, trajectory, console output)`.

    It runs one episode in a new sandbox, which sends no further request once `stop` is set. Other arguments are ignored.
    """
    from ..agent import Agent, AgentArgs
    from ..cli import get_default_config_path, load_prompt_config
    from ..docker_runtime import DockerRuntime

    logger = logging.getLogger("benchmark")
    logger.setLevel(logging.WARNING)
    system, instance = task_system_prompt, task_instance_prompt or ""
    if not system:
        config = load_prompt_config(get_default_config_path())
        system, instance = config.get("system_prompt", ""), config.get("instance_prompt", "")
    directory = output_dir or "/testbed"

    class Stopping(Agent):
        def model_query(self, *arguments: Any, **keywords: Any) -> tuple[Any, float]:
            if stop is not None and stop.is_set():
                raise RuntimeError("the benchmark was stopped")
            return super().model_query(*arguments, **keywords)

    def run(query: str, input_files: dict[str, str], local_output_dir: str | None) -> tuple[str, Any, str]:
        args = AgentArgs(
            system_prompt=system,
            instance_prompt=instance,
            llm_name=llm_name,
            llm_base_url=llm_base_url,
            output_dir=local_output_dir,
            extra_body=extra_body,
            quiet=True,
            save_litellm_response=save_litellm_response,
        )
        agent = Stopping(args, logger)
        with DockerRuntime(docker_image, repo_path=working_dir or "/testbed", logger=logger) as runtime:
            if input_files:
                _copy_files(runtime, input_files, input_dir or "/testbed/documents")
            trajectory = agent.run(
                runtime,
                query,
                max_steps=max_steps,
                temperature=temperature,
                max_token_limit=max_token_limit,
                max_tokens_per_call=max_tokens_per_call,
            )
            answer, _ = runtime.run(f"cat {directory}/answer.txt 2>/dev/null || echo ''")
        return answer.strip(), trajectory, agent.get_console_output()

    return run


def _copy_files(runtime: Any, files: Mapping[str, str | None], directory: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in files.items():
            # Rows of a dataset have all names that any row has.
            if content is not None:
                path = Path(scratch, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
        runtime.copy_dir_to_container(scratch, directory)


def run_vanilla_llm(query: str, agent_config: dict[str, Any]) -> tuple[str, str]:
    """Asks the model without a sandbox. Returns its answer, and question and answer as text."""
    target = chat.server(agent_config["llm_name"], agent_config.get("llm_base_url"))
    limit = agent_config.get("max_response_len", 65536)
    for _ in range(_TRIES):
        try:
            response = chat.completion(
                target,
                [{"role": "user", "content": query}],
                max_tokens=limit,
                temperature=agent_config.get("temperature", 1.0),
                extra_body=agent_config.get("extra_body"),
                timeout=_HTTP_TIMEOUT,
            )
        except chat.ChatError as error:
            if budget.too_many_tokens(str(error)):
                smaller = budget.smaller_limit(str(error), limit)
                if smaller is None:
                    raise
                limit = smaller
            elif error.status == 429:
                time.sleep(error.retry_after or 60)
            else:
                raise
            continue
        answer = response.choices[0].message.content or ""
        return answer, f"Query:\n{query}\n\nResponse:\n{answer}\n"
    raise RuntimeError(f"Failed after {_TRIES} retries")


def run_single_problem(args: dict[str, Any]) -> BenchmarkResult:
    """Runs one problem and scores it. The arguments are those that `run_benchmark` gives to its workers."""
    return _scored(args, _answered(args))


def _answered(args: dict[str, Any]) -> _Answer:
    """Runs a problem. A failure becomes part of the answer, unless it would fail every other problem too."""
    problem, config = args["problem"], args["agent_config"]
    try:
        if args.get("mode", "llm-in-sandbox") == "llm":
            query = load_prompt_function(args["task_name"])(problem)
            text, console = run_vanilla_llm(query, config)
            return _Answer(text, [], console)
        prompts = args["prompt_config"]
        directories: dict[str, Any] = {
            "working_dir": prompts.get("working_dir") or "/testbed",
            "input_dir": prompts.get("input_dir") or "/testbed/documents",
            "output_dir": prompts.get("output_dir") or "/testbed",
        }
        run = create_agent_runner(
            **config,
            task_system_prompt=_filled(prompts["system_prompt"], directories),
            task_instance_prompt=_filled(prompts["instance_prompt"], directories),
            **directories,
            stop=args.get("stop"),
        )
        kept = None
        if config.get("save_litellm_response"):
            kept = os.path.join(args["output_dir"], "litellm_logs", problem["id"])
        files: Any = problem.get("input_files") or {}
        files = json.loads(files) if isinstance(files, str) else files
        text, trajectory, console = run(problem["problem_statement"], files, kept)
        return _Answer(text, [step.to_dict() for step in trajectory.steps], console)
    except ImportError:
        raise
    except Exception as error:
        if _stops_everything(error):
            raise
        traceback.print_exc()
        return _Answer(error=str(error))


def _stops_everything(error: Exception) -> bool:
    from ..errors import SandboxUnavailable

    if isinstance(error, SandboxUnavailable):
        return True
    return "AuthenticationError" in str(error) or "api_key" in str(error).lower()


def _filled(prompt: str, directories: dict[str, str]) -> str:
    for name, path in directories.items():
        prompt = prompt.replace(f"{{{name}}}", path)
    return prompt


def _scored(args: dict[str, Any], answer: _Answer) -> BenchmarkResult:
    """Scores an answer and writes its log."""
    problem = args["problem"]
    truth, statement = problem["ground_truth"], problem["problem_statement"]
    score, error = 0.0, answer.error
    if error is None:
        try:
            row = {name: value for name, value in problem.items() if name != "ground_truth"}
            score = load_reward_function(args["task_name"])(answer.text, truth, **row)
        except ImportError:
            raise
        except Exception as failure:
            traceback.print_exc()
            error = str(failure)
    log = Path(args["logs_dir"], f"{problem['id']}.txt")
    if error is None:
        rule = "=" * 80
        log.write_text(
            f"{answer.console}\n{rule}\n### Result ###\nProblem ID: {problem['id']}\nAgent Answer: {answer.text}\n"
            f"Ground Truth: {truth}\nScore: {score:.4f}\n{rule}\n",
            encoding="utf-8",
        )
        return BenchmarkResult(problem["id"], score, answer.text, truth, statement, answer.trajectory)
    log.write_text(f"Problem ID: {problem['id']}\nERROR: {error}\nGround Truth: {truth}\n", encoding="utf-8")
    return BenchmarkResult(problem["id"], 0.0, "", truth, statement, [], error)


def run_benchmark(
    task_name: str,
    agent_config: dict[str, Any],
    output_dir: str,
    num_workers: int = 1,
    start_id: int | None = None,
    end_id: int | None = None,
    mode: str = "llm-in-sandbox",
) -> dict[str, Any]:
    """Runs the problems `start_id` to `end_id` (excluded) of a task, `num_workers` at once, and scores them.

    `mode` is `"llm-in-sandbox"`, or `"llm"` for one request without a sandbox. Episodes run in threads; scores are
    computed in the calling thread. After an interrupt, running episodes end after their current request. Writes
    `trajectory.json`, `results.json` and `logs/` below `output_dir`, and returns the content of `results.json`.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, not {num_workers}")
    task = load_task_config(task_name)
    _check_dependencies(task_name)
    problems = list(load_dataset_from_config(task))
    problems = problems[start_id or 0 : end_id or len(problems)]
    logs = os.path.join(output_dir, "logs")
    os.makedirs(logs, exist_ok=True)
    print(f"Benchmark {task_name} ({mode}): {len(problems)} problems, {num_workers} at once, results in {output_dir}")
    shared = {
        "agent_config": agent_config,
        "task_name": task_name,
        "prompt_config": _prompts(task),
        "output_dir": output_dir,
        "logs_dir": logs,
        "mode": mode,
    }
    started = time.time()
    results: list[BenchmarkResult] = []
    jobs = [{"problem": problem, **shared} for problem in problems]
    with closing(_results(jobs, num_workers)) as ended:
        for result in ended:
            results.append(result)
            mean = sum(result.score for result in results) / len(results)
            print(f"[{len(results)}/{len(problems)}] {result.problem_id}: {result.score:.4f} (mean {mean:.4f})")
    return _saved(output_dir, task_name, {"mode": mode, **agent_config}, results, time.time() - started)


def _check_dependencies(task_name: str) -> None:
    """Raises `ImportError` before any problem is run if the task's grader lacks a package."""
    try:
        load_reward_function(task_name)("test", "test")
    except ImportError:
        raise
    except Exception:
        pass  # The test is not a problem of the task.


def _prompts(task: dict[str, Any]) -> dict[str, Any]:
    if "system_prompt" in task:
        return {"instance_prompt": "", **task}
    if "prompt_config" in task:
        prompts: dict[str, Any] = yaml.load(task["prompt_config"])
        return prompts
    raise ValueError("Task config must have either 'system_prompt' or 'prompt_config'")


def _results(jobs: list[dict[str, Any]], workers: int) -> Generator[BenchmarkResult, None, None]:
    """Runs jobs at once and yields results in the order in which they end. Scores here: some graders need the main thread."""
    if workers == 1:
        yield from (run_single_problem(job) for job in jobs)
        return
    stop = threading.Event()
    waiting: SimpleQueue[dict[str, Any]] = SimpleQueue()
    ended: SimpleQueue[tuple[dict[str, Any], _Answer | BaseException]] = SimpleQueue()
    for job in jobs:
        waiting.put({**job, "stop": stop})

    def work() -> None:
        while not stop.is_set():
            try:
                job = waiting.get_nowait()
            except Empty:
                return
            try:
                ended.put((job, _answered(job)))
            except BaseException as error:
                ended.put((job, error))

    # Not of a pool, whose threads the interpreter would wait for at its exit.
    for _ in range(min(workers, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in jobs:
            job, answer = ended.get()
            if isinstance(answer, BaseException):
                raise answer
            yield _scored(job, answer)
    finally:
        # After an interruption or a failure, nothing new starts.
        stop.set()


def _saved(
    output_dir: str, task_name: str, config: dict[str, Any], results: Iterable[BenchmarkResult], seconds: float
) -> dict[str, Any]:
    results = list(results)
    scores = [result.score for result in results]
    summary = {
        "config": config,
        "task": task_name,
        "total": len(results),
        "mean_score": sum(scores) / len(scores) if scores else 0.0,
        "num_errors": sum(1 for result in results if result.error),
        "elapsed_time_seconds": seconds,
    }
    trajectories = {
        result.problem_id: {
            "problem_statement": result.problem_statement,
            "trajectory": result.trajectory,
            "reward": result.score,
            "agent_answer": result.agent_answer,
            "ground_truth": result.ground_truth,
        }
        for result in results
    }
    for name, content in (("trajectory.json", trajectories), ("results.json", summary)):
        text = json.dumps(content, indent=2, ensure_ascii=False)
        Path(output_dir, name).write_text(text, encoding="utf-8")
    print(f"{task_name}: mean score {summary['mean_score']:.4f}, {summary['num_errors']} errors, {seconds:.0f} s")
    return summary
