"""Measures `DockerRuntime(...)`, `run("true")`, `close()` with the package of this interpreter, ours or the reference.

    python perf_reference.py IMAGE ROUNDS

prints the seconds of each round as JSON. `perf.py` runs it with both packages.
"""

from __future__ import annotations

import json
import sys
import time
import warnings


def main(image: str, rounds: int) -> None:
    from llm_in_sandbox import DockerRuntime

    warnings.simplefilter("ignore")
    measured = []
    # The first starts what later ones share, and does not count.
    for _ in range(rounds + 1):
        started = time.perf_counter()
        runtime = DockerRuntime(docker_image=image, repo_path="/testbed", logger=False)
        result = runtime.run("true")
        runtime.close()
        measured.append(time.perf_counter() - started)
        assert result == ("", "0"), result
    print(json.dumps(measured[1:]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
