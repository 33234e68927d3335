"""`benchmark`: a model on the problems of tasks, graded and stored, by the program of this package."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ._engine import find_program
from ._event_loop import in_daemon_thread
from ._function_server import FunctionServer
from ._messages import Json
from ._model import Model, ModelFunction, settings
from ._scratch import Scratch, until_exit
from ._trajectory import Trajectory
from .errors import InfrastructureError, UsageError

__all__ = ["Attempt", "BenchmarkResults", "abenchmark", "benchmark"]

_KEY = "LLM_IN_SANDBOX_BENCHMARK_KEY"
#: Becomes the program, which gets SIGTERM when the thread that started it ends, even by `kill -9`. That thread waits for it.
_TIED = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Attempt:
    """One try at one problem, graded."""

    task: str
    mode: str
    id: str
    repeat: int
    answer: str
    score: float | None
    """From 0 to 1; `None` where the infrastructure failed, or a judge is missing."""
    outcome: str
    record: Mapping[str, Any]
    """All that is stored of it."""
    directory: Path
    """The directory of its run."""

    @property
    def trajectory(self) -> Trajectory:
        """What happened; the file is read at each access."""
        attempts = self.directory / "attempts"
        path = Path(str(self.record["_path"]))
        events = self.directory / "trajectories" / path.relative_to(attempts).with_suffix(".jsonl")
        return Trajectory.from_file(events)


class BenchmarkResults:
    """The results of a benchmark run, read from its directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        file = self.directory / "results.json"
        if not file.is_file():
            raise UsageError(f"{self.directory} is not the directory of a benchmark run")
        self.summary: Json = json.loads(file.read_text(encoding="utf-8"))
        """The content of `results.json`."""
        self.attempts: list[Attempt] = list(self._read())

    def _read(self) -> Iterator[Attempt]:
        for path in sorted((self.directory / "attempts").rglob("*.json")):
            record: Json = json.loads(path.read_text(encoding="utf-8"))
            record["_path"] = str(path)
            yield Attempt(
                task=record["task"],
                mode=record["mode"],
                id=record["id"],
                repeat=record.get("repeat", 0),
                answer=record.get("answer", ""),
                score=record.get("score"),
                outcome=record.get("outcome", ""),
                record=record,
                directory=self.directory,
            )

    @property
    def score(self) -> float | None:
        """The mean score of the attempts that have one."""
        scores = [attempt.score for attempt in self.attempts if attempt.score is not None]
        return sum(scores) / len(scores) if scores else None

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row for each attempt. Needs pandas."""
        pd = import_module("pandas")

        names = ("task", "mode", "id", "repeat", "score", "outcome", "answer")
        return pd.DataFrame([{name: getattr(a, name) for name in names} for a in self.attempts])

    def __repr__(self) -> str:
        score = "none" if self.score is None else f"{self.score:.3f}"
        return f"<BenchmarkResults {len(self.attempts)} attempts, score {score}, {self.directory}>"


def benchmark(
    task: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: Model | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    data: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Iterable[Mapping[str, Any]] | None = None,
    mode: Literal["sandbox", "llm", "both"] = "sandbox",
    repeat: int | None = None,
    limit: int | None = None,
    ids: Sequence[str] = (),
    max_turns: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    concurrency: int | None = None,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> BenchmarkResults:
    """Runs a model on the problems of a task, grades the answers and stores every attempt.

    Args:
        task: a built-in task such as "math", the directory of one of your own, or several.
        model: as for `Agent`: a name, or a function, which is then called from several threads.
        data: rows: a file, a file for each task, or dictionaries. By default the task's own, or the hub's.
        mode: in a sandbox, with one plain response, or both.
        output: directory of the run; the same one again adds what is missing. By default a temporary one, which is
            removed when the interpreter exits.
        options: further options of `llm-in-sandbox benchmark`.

    Raises:
        UsageError: the program refuses the arguments.
        InfrastructureError: attempts failed because of the machine, the model's server or the judge. What finished is
            stored in `output`. An exception of a function is the `__cause__`.
    """
    return _played(locals(), None)


async def abenchmark(
    task: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: Model | None = None,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    data: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | Iterable[Mapping[str, Any]] | None = None,
    mode: Literal["sandbox", "llm", "both"] = "sandbox",
    repeat: int | None = None,
    limit: int | None = None,
    ids: Sequence[str] = (),
    max_turns: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    concurrency: int | None = None,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> BenchmarkResults:
    """The same for asyncio. A function may be a coroutine function, which is awaited in this event loop; others are called
    in threads. Cancelling the task cancels what is awaited there and ends the run; what finished is stored."""
    # A copy: the local variables must not change with it.
    arguments = dict(locals())
    stop = threading.Event()
    function = _InLoop(model) if callable(model) else None
    if function is not None:
        arguments["model"] = function
    work = in_daemon_thread(lambda: _played(arguments, stop))
    try:
        return await asyncio.shield(work)
    finally:
        stop.set()
        # After a cancellation the program ends first, and its files are removed.
        await _ended([work, *(function.stop() if function is not None else ())])


class _InLoop:
    """A function that threads call: what it returns is awaited in the event loop in which this was created."""

    def __init__(self, function: ModelFunction) -> None:
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Set in the loop, where all tasks are created: no task starts afterwards.
        self._stopped = False

    def __call__(self, messages: list[Json], tools: list[Json]) -> Any:
        if self._stopped:
            raise _Stopped
        # A copy, because a context runs in one thread at a time.
        value = self._context.copy().run(self._function, messages, tools)
        if not inspect.isawaitable(value):
            return value
        answer: Future[Any] = Future()
        try:
            self._loop.call_soon_threadsafe(self._start, value, answer, context=self._context)
        except RuntimeError as error:
            _discard(value)
            raise _Stopped from error
        return answer.result()

    def _start(self, value: Awaitable[Any], answer: Future[Any]) -> None:
        if self._stopped:
            _discard(value)
            answer.set_exception(_Stopped())
            return

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                answer.cancel()
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task = self._loop.create_task(_awaited(value))
        self._tasks.add(task)
        task.add_done_callback(ended)

    def stop(self) -> list[asyncio.Task[Any]]:
        """Cancels what is being awaited, and returns it. Later calls are refused."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _ended(futures: Sequence[asyncio.Future[Any]]) -> None:
    """Waits for the end of all. A cancellation of this task does not end the waiting, and is raised after it."""
    cancelled = False
    while running := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            cancelled = True
    for future in futures:
        if not future.cancelled():
            # Otherwise an exception that nobody asks for is logged.
            future.exception()
    if cancelled:
        raise asyncio.CancelledError


def _discard(value: Awaitable[Any]) -> None:
    if inspect.iscoroutine(value):
        value.close()


class _Stopped(Exception):
    """The caller does not wait for the run any more."""

    def __str__(self) -> str:
        return "the benchmark was stopped"


def _played(given: Mapping[str, Any], stop: threading.Event | None) -> BenchmarkResults:
    """Runs the program with the arguments of `benchmark`, until it ends or `stop` is set."""
    chosen = settings(given["model"], base_url=given["base_url"], api_key=given["api_key"])
    task, output = given["task"], given["output"]
    tasks = [task] if isinstance(task, (str, os.PathLike)) else list(task)
    with ExitStack() as stack:
        served: FunctionServer | None = None
        where = os.fspath(output) if output is not None else until_exit()
        words = [find_program(), "benchmark", *(os.fspath(name) for name in tasks)]
        words += ["--output", where, "--json", "--quiet", "--yes", "--mode", given["mode"]]
        key = chosen.api_key
        if chosen.function is not None:
            served = stack.enter_context(FunctionServer(chosen.function, chosen.name))
            words += ["--model", chosen.name, "--base-url", served.base_url, "--no-preflight"]
            key = served.api_key
        elif chosen.is_local:
            words += ["--model", "local" if chosen.name == "local" else f"local:{chosen.name}"]
        else:
            words += ["--model", chosen.name, "--base-url", str(chosen.base_url)]
        environment = dict(os.environ)
        if key is not None and not chosen.is_local:
            environment[_KEY] = key
            words += ["--api-key-env", _KEY]
        words += _data(given["data"], tasks, stack)
        names = (
            "repeat limit max_turns max_tokens temperature seed concurrency judge_model judge_base_url"
        )
        values = {"--" + name.replace("_", "-"): given[name] for name in names.split()}
        values["--ids"] = ",".join(given["ids"]) or None
        for name, value in values.items():
            if value is not None:
                words += [name, str(value)]
        try:
            _run([*words, *given["options"]], environment, stop)
        except InfrastructureError as error:
            raised = served.error if served is not None else None
            if raised is not None and not isinstance(raised, Exception):
                # `KeyboardInterrupt` and `SystemExit` are for this process.
                raise raised from None
            raise error from raised
        return BenchmarkResults(where)


def _data(data: Any, tasks: list[Any], stack: ExitStack) -> list[str]:
    """The options that name the rows."""
    if data is None:
        return []
    if isinstance(data, (str, os.PathLike)):
        return ["--data", os.fspath(data)]
    if isinstance(data, Mapping):
        return [word for name, path in data.items() for word in ("--data", f"{name}={os.fspath(path)}")]
    if len(tasks) > 1:
        raise UsageError("rows of several tasks are given by task, as files")
    directory = stack.enter_context(Scratch()).path
    path = os.path.join(directory, "rows.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for row in data:
            file.write(json.dumps(row) + "\n")
    return ["--data", path]


def _run(words: list[str], environment: dict[str, str], stop: threading.Event | None) -> None:
    """Runs the program; an interrupt, `stop`, and the end of this process, end it too."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    lines: list[str] = []
    assert process.stderr is not None
    stderr = process.stderr

    def read() -> None:
        for line in stderr:
            lines.append(line.rstrip())
            del lines[:-50]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while True:
            try:
                code = process.wait(0.2)
                break
            except subprocess.TimeoutExpired:
                if stop is not None and stop.is_set():
                    raise _Stopped from None
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    reader.join(5)
    message = "\n".join(line.removeprefix("llm-in-sandbox: ") for line in lines[-5:])
    if code == 2:
        raise UsageError(message)
    if code != 0:
        raise InfrastructureError(message or f"the program ended with {code}")
