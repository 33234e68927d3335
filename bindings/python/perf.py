"""Measures the Python package: sandboxes beside the reference package on Docker, calls, threads, asyncio, multiprocessing.

`cargo xtask perf-python` builds a release wheel, starts a Docker daemon, installs the reference package, and runs this. Prints a
table, or one object with `--json`. The exit code is 1 where a bound is missed, also where something of a sandbox is left at the
end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from llm_in_sandbox import AsyncSandbox, Sandbox, SandboxPool
from llm_in_sandbox._engine import engine

#: Name and value of each figure, with its bound: at least, or at most.
Figures = dict[str, tuple[float, str, float]]
#: Seconds after which threads, tasks and processes count as hung.
HANG = 300
#: Seconds until nothing is left of sandboxes that were closed.
GONE = 20


def timed(count: int, work: Callable[[], object]) -> list[float]:
    """Seconds of each call."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return took


def milliseconds(count: int, work: Callable[[], object]) -> float:
    """The median of the calls."""
    return statistics.median(timed(count, work)) * 1e3


def lifecycle() -> None:
    with Sandbox() as sandbox:
        sandbox.run(["true"], check=True)


def calls(sandbox: Sandbox, rounds: int) -> tuple[float, float, float]:
    """Seconds of a call from Python and from Rust, and the difference, as medians over pairs of short turns.

    In turns, because what the machine does meanwhile then affects both.
    """
    python: list[float] = []
    rust: list[float] = []
    differences: list[float] = []
    for _ in range(rounds):
        ours = timed(10, lambda: sandbox.run(["true"]))
        alone = sandbox._handle.measure_runs(["true"], 10).wait()
        differences.append(statistics.median(ours) - statistics.median(alone))
        python += ours
        rust += alone
    return statistics.median(python), statistics.median(rust), statistics.median(differences)


def threads(count: int, each: int) -> tuple[float, int]:
    """Sandboxes per second, created, used and closed by threads, and how many failed or did not end."""
    ended: list[Exception | None] = []

    def work() -> None:
        for _ in range(each):
            try:
                lifecycle()
                ended.append(None)
            except Exception as error:
                ended.append(error)

    made = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    start = time.perf_counter()
    for thread in made:
        thread.start()
    join(made)
    return count * each / (time.perf_counter() - start), count * each - ended.count(None)


def join(made: list[threading.Thread]) -> None:
    """Waits for threads, but not for those that hang."""
    deadline = time.monotonic() + HANG
    for thread in made:
        thread.join(max(0, deadline - time.monotonic()))


def at_once(count: int) -> tuple[float, float, int]:
    """Seconds until so many sandboxes are open at once, until each has run a command and is closed, and how many failed; all,
    if they hang."""
    try:
        return asyncio.run(asyncio.wait_for(_at_once(count), HANG))
    except asyncio.TimeoutError:
        return HANG, HANG, count


async def _at_once(count: int) -> tuple[float, float, int]:
    start = time.perf_counter()
    made = await asyncio.gather(*(AsyncSandbox.create() for _ in range(count)), return_exceptions=True)
    opened = time.perf_counter() - start
    sandboxes = [sandbox for sandbox in made if isinstance(sandbox, AsyncSandbox)]
    results = await asyncio.gather(*(sandbox.run(["true"], check=True) for sandbox in sandboxes), return_exceptions=True)
    closed = await asyncio.gather(*(sandbox.close() for sandbox in sandboxes), return_exceptions=True)
    failed = sum(isinstance(one, BaseException) for one in [*made, *results, *closed])
    return opened, time.perf_counter() - start, failed


def run_of(sandbox: Sandbox) -> str:
    """The name that all sandboxes of its process start with."""
    return sandbox.id.rsplit("-", 1)[0]


def in_a_worker(number: int) -> str | None:
    """Uses a sandbox of a worker process; returns the name of its run, or `None` if it fails."""
    try:
        with Sandbox() as sandbox:
            return run_of(sandbox) if sandbox.run(f"echo {number}").stdout == f"{number}\n" else None
    except Exception:
        return None


def processes(method: str, count: int, runs: set[str]) -> int:
    """How many sandboxes of worker processes fail, while threads of this one use another; all, if they hang. Adds the names
    of their runs."""
    done = threading.Event()
    with Sandbox() as sandbox:

        def use() -> None:
            while not done.is_set():
                sandbox.run(["true"])

        users = [threading.Thread(target=use, daemon=True) for _ in range(4)]
        for user in users:
            user.start()
        try:
            with multiprocessing.get_context(method).Pool(4) as pool:
                made = pool.map_async(in_a_worker, range(count)).get(HANG)
                runs.update(run for run in made if run is not None)
                return made.count(None)
        except multiprocessing.TimeoutError:
            return count
        finally:
            done.set()
            join(users)


def left(runs: set[str]) -> list[str]:
    """What is left of runs on this machine: processes, mounts and control groups."""
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            group = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
        except OSError:
            continue
        if any(run in group for run in runs):
            found.append(f"process {pid}")
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    found += [f"mount {line.split()[4]}" for line in mounts if any(run in line for run in runs)]
    for base, directories, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(base, name) for name in directories if any(run in name for run in runs)]
    return found


def left_after(runs: set[str], seconds: float = GONE) -> list[str]:
    """What is still left of them after some time."""
    deadline = time.monotonic() + seconds
    while (found := left(runs)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def beside(reference: str, image: str, rounds: int) -> tuple[float, float]:
    """Median seconds of a sandbox of `DockerRuntime`, from creation to end: ours, and the reference's."""

    def measure(python: str, count: int) -> list[float]:
        words = [python, str(Path(__file__).with_name("perf_reference.py")), image, str(count)]
        ended = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=HANG)
        seconds: list[float] = json.loads(ended.stdout.splitlines()[-1])
        return seconds

    # Before and after, because the machine may become busier.
    before = measure(sys.executable, rounds)
    theirs = measure(reference, 4)
    return statistics.median(before + measure(sys.executable, rounds)), statistics.median(theirs)


def figures(arguments: argparse.Namespace) -> Figures:
    """All figures."""
    rounds, count = arguments.rounds, arguments.sandboxes
    made: Figures = {}

    def add(name: str, value: float, kind: str = "", bound: float = 0.0) -> None:
        made[name] = (value, kind, bound)

    if arguments.reference:
        ours, theirs = beside(arguments.reference, arguments.image, rounds)
        add("DockerRuntime: create + run + close, median ms", ours * 1e3)
        add("the same of the reference on Docker, median ms", theirs * 1e3)
        add("ratio", theirs / ours, "at least", 50)
    with Sandbox() as sandbox:
        runs = {run_of(sandbox)}
    add("Sandbox: create + run + close, median ms", milliseconds(rounds, lifecycle))
    with SandboxPool(8) as pool:

        def warm() -> None:
            with pool.take() as sandbox:
                sandbox.run(["true"])

        # At the rate at which the pool fills, at least.
        add("the same from a pool, median ms", milliseconds(min(rounds, 50), warm))
    with Sandbox() as sandbox:
        python, rust, overhead = calls(sandbox, rounds)
        add("run, median ms", python * 1e3)
        add("run through Rust alone, median ms", rust * 1e3)
        add("overhead of a call over Rust, median us", overhead * 1e6, "at most", 100)
        add("shell, median ms", milliseconds(rounds * 5, lambda: sandbox.shell("true")))
        add("read, without a command, median us", milliseconds(rounds * 5, lambda: sandbox.read("/etc/hostname")) * 1e3)
    rate, failed = threads(64, 4)
    add("64 threads: sandboxes per second", rate)
    add("64 threads: failures", failed, "at most", 0)
    opened, total, failed = at_once(count)
    add(f"asyncio: {count} sandboxes open after s", opened)
    add(f"asyncio: {count} sandboxes used and closed after s", total)
    add(f"asyncio: {count} sandboxes: failures", failed, "at most", 0)
    for method in ("fork", "spawn"):
        start = time.perf_counter()
        failed = processes(method, 32, runs)
        add(f"multiprocessing {method}: 32 sandboxes after s", time.perf_counter() - start)
        add(f"multiprocessing {method}: failures", failed, "at most", 0)
    # As the interpreter does at its exit; no sandbox can be created afterwards.
    engine().shut_down()
    remains = left_after(runs)
    for one in remains:
        print(f"left: {one}", file=sys.stderr)
    add("left at the end: processes, mounts, control groups", len(remains), "at most", 0)
    return made


def is_missed(value: float, kind: str, bound: float) -> bool:
    return (kind == "at least" and value < bound) or (kind == "at most" and value > bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=200, help="repetitions of short operations [default: 200]")
    parser.add_argument("--sandboxes", type=int, default=512, help="sandboxes at once [default: 512]")
    parser.add_argument("--reference", metavar="PYTHON", help="interpreter with the reference package")
    parser.add_argument("--image", default="host", help="image that Docker and our store have")
    arguments = parser.parse_args()
    made = figures(arguments)
    missed = [name for name, figure in made.items() if is_missed(*figure)]
    if arguments.json:
        print(json.dumps({"figures": {name: value for name, (value, _, _) in made.items()}, "missed": missed}))
    else:
        for name, (value, kind, bound) in made.items():
            verdict = f"{kind} {bound:g}: {'missed' if name in missed else 'ok'}" if kind else ""
            print(f"{value:12.2f}  {name:56}{verdict}".rstrip())
        if not arguments.reference:
            print(f"{'':12}  the reference on Docker was not measured")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
