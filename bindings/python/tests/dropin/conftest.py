"""One sandbox for all cases."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator

import pytest

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(scope="session")
def bench() -> Iterator[object]:
    from cases import Bench

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench = Bench("host")
    yield bench
    bench.runtime.close()
