"""A sandbox provider of Inspect. Needs `inspect-ai`, which finds it by itself: `eval(task, sandbox="llm_in_sandbox")`.

    Task(..., sandbox=SandboxEnvironmentSpec("llm_in_sandbox", SandboxConfig(memory="2G", network="internet")))

A tuple such as `("llm_in_sandbox", "base")` names an image.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._arguments import MAX_READ
from ._async_sandbox import AsyncSandbox
from .errors import PathError, SandboxClosed, SandboxGone

if TYPE_CHECKING:
    # Where types are checked, Inspect is not installed.
    class _Model:
        def __init__(self, **fields: Any) -> None: ...

        def model_dump(self, **options: Any) -> dict[str, Any]: ...

    class _Environment:
        pass

    class _UserUnsupported(Exception): ...

    class _OutputLimit(Exception):
        def __init__(self, limit_str: str, truncated_output: str | None) -> None: ...

    class _Limits:
        MAX_EXEC_OUTPUT_SIZE: int
        MAX_EXEC_OUTPUT_SIZE_STR: str
        MAX_READ_FILE_SIZE: int
        MAX_READ_FILE_SIZE_STR: str

    _ExecResult: Any
    _ConfigDict: Any
    _Connection: Any

    def _register(name: str) -> Any: ...
else:
    from inspect_ai.util import ExecResult as _ExecResult
    from inspect_ai.util import OutputLimitExceededError as _OutputLimit
    from inspect_ai.util import SandboxEnvironment as _Environment
    from inspect_ai.util import SandboxEnvironmentLimits as _Limits
    from inspect_ai.util import SandboxUserUnsupportedError as _UserUnsupported
    from inspect_ai.util import sandboxenv as _register
    from pydantic import BaseModel as _Model
    from pydantic import ConfigDict as _ConfigDict

__all__ = ["InspectSandbox", "SandboxConfig"]


class SandboxConfig(_Model):
    """The sandbox of a sample; the fields are the arguments of `Sandbox`."""

    if not TYPE_CHECKING:
        model_config = _ConfigDict(frozen=True, extra="forbid")

    image: str = "host"
    env: "dict[str, str] | None" = None
    workdir: "str | None" = None
    memory: "int | str | None" = None
    cpus: "float | None" = None
    disk: "int | str | None" = None
    processes: "int | None" = None
    network: "str | list[str]" = "none"
    runtime: str = "native"
    docker_host: "str | None" = None
    stall_timeout: "float | None" = None


@_register(name="llm_in_sandbox")
class InspectSandbox(_Environment):  # type: ignore[misc, unused-ignore]
    """A sandbox of one sample.

    A failure of the machine (`InfrastructureError`) ends the sample with an error, which Inspect counts apart from scores and
    can try again (`retry_on_error`). It is not `SandboxUnavailableError`, because Inspect would show that to the model as the
    result of its tool call and score the sample.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, InspectSandbox]:
        """Creates the sandbox of a sample.

        Raises:
            InfrastructureError: the machine cannot.
        """
        return {"default": cls(await AsyncSandbox.create(**_options(config)))}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, Any], interrupted: bool
    ) -> None:
        """Removes the sandbox of a sample."""
        for environment in environments.values():
            await environment.sandbox.close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> SandboxConfig:
        """The configuration as it is read from a log."""
        return SandboxConfig(**config)

    def default_polling_interval(self) -> float:
        """The sandbox is on this machine: asking often costs little."""
        return 0.2

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> Any:
        """Runs a program. A timeout is not tried again: the sandbox is local, and a command would run twice."""
        if user not in (None, "root", "0"):
            raise _UserUnsupported(f"cannot run commands as `{user}`: the sandbox has the user root only")
        limit = _Limits.MAX_EXEC_OUTPUT_SIZE
        with _failures():
            result = await self.sandbox.run(
                cmd, cwd=cwd, env=env, stdin=input, timeout=timeout, max_output=limit
            )
        if result.truncated:
            raise _OutputLimit(_Limits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout or result.stderr)
        if result.timed_out:
            raise TimeoutError(f"the command did not end within {timeout} s")
        code = 1 if result.exit_code is None else result.exit_code
        if code == 126 and "ermission denied" in result.stderr:
            raise PermissionError(errno.EACCES, result.stderr.strip())
        return _ExecResult(code == 0, code, result.stdout, result.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file, creating missing directories."""
        with _failures(file):
            await self.sandbox.write(file, contents)

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file as UTF-8, or its bytes."""
        limit = _Limits.MAX_READ_FILE_SIZE
        with _failures(file):
            try:
                content = await self.sandbox.read(file, max_bytes=min(limit, MAX_READ))
            except PathError as error:
                if error.errno == errno.EFBIG:
                    raise _OutputLimit(_Limits.MAX_READ_FILE_SIZE_STR, None) from error
                raise
        return content.decode("utf-8") if text else content


def _options(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, str):
        return {"image": config}
    if not isinstance(config, SandboxConfig):
        raise TypeError(f"expected SandboxConfig or the name of an image, not {type(config).__name__}")
    return config.model_dump()


@contextmanager
def _failures(file: str | None = None) -> Generator[None, None, None]:
    """Failures as Inspect knows them: those that are the model's to see have a class of their own in Python."""
    try:
        yield
    except SandboxClosed as error:
        raise SandboxGone(str(error)) from error
    except PathError as error:
        kinds: dict[int | None, type[OSError]] = {
            errno.ENOENT: FileNotFoundError,
            errno.EISDIR: IsADirectoryError,
            errno.EACCES: PermissionError,
            errno.EPERM: PermissionError,
            errno.EROFS: PermissionError,
        }
        kind = kinds.get(error.errno)
        if kind is None or error.errno is None:
            raise
        raise kind(error.errno, os.strerror(error.errno), file or error.filename) from error
