"""Benchmarks: `llm_in_sandbox.benchmark(...)` of the engine, and the functions of the reference package.

The engine's benchmark is a function of the same name as this package, so the package can be called.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from .runner import BenchmarkResult, load_reward_function, load_task_config, run_benchmark

__all__ = ["BenchmarkResult", "load_reward_function", "load_task_config", "run_benchmark"]


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .._benchmark import benchmark

        return benchmark(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
