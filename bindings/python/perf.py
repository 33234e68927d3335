"""Measures the Python package: a sandbox from creation to end, calls, threads, asyncio.

`cargo xtask perf-python` builds a release wheel and runs this with it. Prints one line for each figure, `--json` one object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable

from llm_in_sandbox import AsyncSandbox, Sandbox, SandboxPool


def timed(count: int, work: Callable[[], object]) -> list[float]:
    """Seconds of each call."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return took


def lifecycle() -> None:
    with Sandbox() as sandbox:
        sandbox.run(["true"])


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


def threads(count: int, each: int) -> float:
    """Sandboxes per second, created, used and closed by threads."""

    def work() -> None:
        for _ in range(each):
            lifecycle()

    made = [threading.Thread(target=work) for _ in range(count)]
    start = time.perf_counter()
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    return count * each / (time.perf_counter() - start)


async def at_once(count: int) -> tuple[float, float]:
    """Seconds until so many sandboxes are open at once, and until each has run a command and is closed."""
    start = time.perf_counter()
    made = await asyncio.gather(*(AsyncSandbox.create() for _ in range(count)))
    opened = time.perf_counter() - start
    results = await asyncio.gather(*(sandbox.run(["true"]) for sandbox in made))
    assert all(result.ok for result in results)
    await asyncio.gather(*(sandbox.close() for sandbox in made))
    return opened, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--sandboxes", type=int, default=512)
    arguments = parser.parse_args()
    rounds = arguments.rounds
    figures: dict[str, float] = {}
    lifecycle()
    took = timed(rounds, lifecycle)
    figures["create + run + close, median ms"] = statistics.median(took) * 1e3
    with SandboxPool(8) as pool:
        time.sleep(0.5)

        def warm() -> None:
            with pool.take() as sandbox:
                sandbox.run(["true"])

        figures["the same from a pool, median ms"] = statistics.median(timed(min(rounds, 50), warm)) * 1e3
    with Sandbox() as sandbox:
        python, rust, overhead = calls(sandbox, rounds)
        figures["run, median ms"] = python * 1e3
        figures["run through Rust alone, median ms"] = rust * 1e3
        figures["overhead of a call over Rust, us"] = overhead * 1e6
        figures["shell, median ms"] = statistics.median(timed(rounds * 5, lambda: sandbox.shell("true"))) * 1e3
        figures["an operation without a command, median us"] = (
            statistics.median(timed(rounds * 5, lambda: sandbox.read("/etc/hostname"))) * 1e6
        )
    figures["64 threads, sandboxes per second"] = threads(64, 4)
    opened, total = asyncio.run(at_once(arguments.sandboxes))
    figures[f"asyncio, {arguments.sandboxes} sandboxes open after s"] = opened
    figures[f"asyncio, {arguments.sandboxes} sandboxes used and closed after s"] = total
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{value:12.2f}  {name}")


if __name__ == "__main__":
    main()
