"""Benchmarks: `llm_in_sandbox.benchmark(...)` of the engine, and the functions of the reference package.

The engine's benchmark is a function of the same name as this package, so the package can be called.
"""

from __future__ import annotations

import inspect
import sys
import types
from importlib import import_module
from typing import Any

from .._benchmark import benchmark as _function
from .runner import BenchmarkResult, load_reward_function, load_task_config, run_benchmark

__all__ = ["BenchmarkResult", "load_reward_function", "load_task_config", "run_benchmark"]


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


#: What `help` and `inspect` show are the function's.
__signature__ = inspect.signature(_function)
__doc__ = f"{_function.__doc__}\n\n{__doc__}"
sys.modules[__name__].__class__ = _Callable
