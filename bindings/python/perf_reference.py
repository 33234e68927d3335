"""Measures `DockerRuntime(...)`, `run("true")`, `close()` with the package of this interpreter.

`python perf_reference.py IMAGE [ROUNDS]` prints the seconds of each round as JSON, with either package: ours natively, the
reference on Docker. `python perf_reference.py IMAGE [ROUNDS] --beside PYTHON` runs both and prints the ratio of the
medians; PYTHON is an interpreter with the reference package.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings


def rounds(image: str, count: int) -> list[float]:
    """Seconds of each round."""
    from llm_in_sandbox import DockerRuntime

    warnings.simplefilter("ignore")
    measured = []
    # The first starts what later ones share, and does not count.
    for _ in range(count + 1):
        started = time.perf_counter()
        runtime = DockerRuntime(docker_image=image, repo_path="/testbed", logger=False)
        assert runtime.run("true") == ("", "0")
        runtime.close()
        measured.append(time.perf_counter() - started)
    return measured[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", help="name of an image of Docker; ours is the stored one of this name, or the host's files")
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("--beside", metavar="PYTHON", help="interpreter with the reference package")
    given = parser.parse_args()
    ours = rounds(given.image, given.rounds if given.beside is None else max(given.rounds, 50))
    if given.beside is None:
        print(json.dumps(ours))
        return
    command = [given.beside, __file__, given.image, str(given.rounds)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    reference = json.loads(ended.stdout.splitlines()[-1])
    fast, slow = statistics.median(ours), statistics.median(reference)
    print(f"ours {1000 * fast:.1f} ms, reference {1000 * slow:.0f} ms: {slow / fast:.0f} times as fast")
    sys.exit(0 if slow >= 50 * fast else 1)


if __name__ == "__main__":
    main()
