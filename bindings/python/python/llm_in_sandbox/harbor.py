"""An environment of Harbor. Needs `harbor`: `harbor run -p TASK -e llm_in_sandbox.harbor:Environment -a oracle`.

Options with `--ek`: `image` names the image of all tasks, `network` another policy than the task's. Nothing is built from a
Dockerfile. Without `image`, that of a task is its `docker_image` by the name in the store, or else `NAME__HASH` as with
E2B's templates.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ._async_sandbox import AsyncSandbox
from .errors import ImageNotFound, PathError, PathNotFound, SandboxGone

if TYPE_CHECKING:
    # Where types are checked, Harbor is not installed.
    class _Base:
        environment_dir: Path
        environment_id: str
        environment_name: str
        network_policy: Any
        task_env_config: Any
        _effective_cpus: float | None
        _effective_memory_mb: int | None
        _effective_storage_mb: int | None

        def __init__(self, *arguments: Any, **keywords: Any) -> None: ...

        def _startup_env(self) -> dict[str, str]: ...
        def _merge_env(self, env: dict[str, str] | None) -> dict[str, str] | None: ...
        def _resolve_user(self, user: str | int | None) -> str | int | None: ...
        def _mount_targets(self, *, writable_only: bool = False) -> list[str]: ...
        async def ensure_dirs(self, dirs: Any, *, chmod: bool = True) -> Any: ...
        async def _upload_environment_dir_after_start(self) -> None: ...

    _Capabilities: Any
    _ResourceCapabilities: Any
    _ExecResult: Any
    _NetworkMode: Any
    SNAPSHOT_HASH_LEN: int

    def require_agent_environment_definition(
        environment_dir: Path, *, docker_image: str | None
    ) -> None: ...

    class _BuildFailed(Exception): ...
else:
    from harbor.environments.base import BaseEnvironment as _Base
    from harbor.environments.base import ExecResult as _ExecResult
    from harbor.environments.base import SandboxBuildFailedError as _BuildFailed
    from harbor.environments.capabilities import EnvironmentCapabilities as _Capabilities
    from harbor.environments.capabilities import (
        EnvironmentResourceCapabilities as _ResourceCapabilities,
    )
    from harbor.environments.definition import (
        SNAPSHOT_HASH_LEN,
        require_agent_environment_definition,
    )
    from harbor.models.task.config import NetworkMode as _NetworkMode

__all__ = ["Environment"]

T = TypeVar("T")

#: The exit code of a command that reached its time limit, as of timeout(1).
_TIMED_OUT = 124


class Environment(_Base):
    """A sandbox of one trial.

    A failure of the machine (`InfrastructureError`) is the exception of the trial, which has no reward then. An image that
    does not exist is Harbor's `SandboxBuildFailedError`, which is not tried again.

    Args:
        image: the image of the sandbox; by default the task decides.
        network: a policy of `Sandbox` in place of the task's, which is public unless it says otherwise.
        arguments, keywords: those of Harbor.
    """

    def __init__(
        self,
        *arguments: Any,
        image: str | None = None,
        network: str | list[str] | None = None,
        **keywords: Any,
    ) -> None:
        self._image = image
        self._network = network
        self._sandbox: AsyncSandbox | None = None
        super().__init__(*arguments, **keywords)

    @staticmethod
    def type() -> str:
        """The name of this kind of environment."""
        return "llm-in-sandbox"

    @property
    def capabilities(self) -> Any:
        """What a sandbox can do: no GPUs, no Compose; a network policy that is fixed when it starts."""
        return _Capabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
        )

    @classmethod
    def resource_capabilities(cls) -> Any:
        """Processor time and memory are limits."""
        return _ResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        if self._image is None:
            require_agent_environment_definition(
                self.environment_dir, docker_image=self.task_env_config.docker_image
            )

    @property
    def sandbox(self) -> AsyncSandbox:
        """The running sandbox."""
        if self._sandbox is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox

    async def start(self, force_build: bool) -> None:
        """Creates the sandbox. Images are not built, so `force_build` has no effect.

        Raises:
            SandboxBuildFailedError: there is no such image.
            InfrastructureError: the machine cannot create a sandbox.
        """
        image = self._image or self.task_env_config.docker_image or self._template()
        megabytes = {"memory": self._effective_memory_mb, "disk": self._effective_storage_mb}
        try:
            self._sandbox = await AsyncSandbox.create(
                image,
                env=self._startup_env(),
                workdir=self._workdir(),
                cpus=self._effective_cpus,
                network=self._policy(),
                **{name: value << 20 for name, value in megabytes.items() if value},  # type: ignore[arg-type]
            )
        except ImageNotFound as error:
            raise _BuildFailed(
                f"{error}; images are not built from a Dockerfile here: make one of this name with "
                "`llm-in-sandbox image build` or name one with `--ek image=NAME`"
            ) from error
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Removes the sandbox, whatever `delete` says: it ends with this process."""
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.close()

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copies a file into the sandbox."""
        await self._alive(self.sandbox.upload(source_path, target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copies the content of a directory into a directory of the sandbox, which may exist."""
        root = os.fspath(source_dir)
        await self._alive(self.sandbox.mkdir(target_dir))
        for directory, _, files in os.walk(root):
            inside = os.path.normpath(os.path.join(target_dir, os.path.relpath(directory, root)))
            await self._alive(self.sandbox.mkdir(inside))
            for name in files:
                source = os.path.join(directory, name)
                await self._alive(self.sandbox.upload(source, os.path.join(inside, name)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copies a file of the sandbox to this machine."""
        os.makedirs(os.path.dirname(os.path.abspath(target_path)), exist_ok=True)
        _remove(target_path)
        await self._alive(self.sandbox.download(source_path, target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies the content of a directory of the sandbox into one of this machine, replacing files."""
        os.makedirs(target_dir, exist_ok=True)
        for entry in await self._alive(self.sandbox.list(source_dir)):
            source = os.path.join(source_dir, entry.name)
            target = os.path.join(target_dir, entry.name)
            if entry.is_dir:
                await self.download_dir(source, target)
            elif entry.kind == "file":
                await self.download_file(source, target)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Any:
        """Runs a command with bash. One that reaches `timeout_sec` has the exit code 124.

        Raises:
            ValueError: another user than root is asked for.
            InfrastructureError: the sandbox failed.
        """
        asked = self._resolve_user(user)
        if asked not in (None, "root", "0", 0):
            raise ValueError(f"cannot run commands as `{asked}`: the sandbox has the user root only")
        variables = self._merge_env(env)
        result = await self._alive(
            self.sandbox.run(command, cwd=cwd, env=variables, timeout=timeout_sec)
        )
        code = _TIMED_OUT if result.exit_code is None else result.exit_code
        return _ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=code)

    async def _alive(self, operation: Awaitable[T]) -> T:
        """Waits for an operation. A path of a sandbox that has ended is not a path that does not exist."""
        try:
            return await operation
        except PathNotFound as error:
            raise FileNotFoundError(error.errno, str(error), error.filename) from error
        except PathError:
            if self.sandbox.closed:
                raise SandboxGone("the sandbox has ended") from None
            raise

    def _workdir(self) -> str | None:
        chosen: str | None = self.task_env_config.workdir
        return chosen or _dockerfile_workdir(self.environment_dir / "Dockerfile")

    def _template(self) -> str:
        name = f"{self.environment_name}__{self.environment_id[:SNAPSHOT_HASH_LEN]}"
        return name.replace("/", "__").replace(".", "-")

    def _policy(self) -> str | list[str]:
        if self._network is not None:
            return self._network
        policy = self.network_policy
        if policy.network_mode == _NetworkMode.NO_NETWORK:
            return "none"
        if policy.network_mode == _NetworkMode.ALLOWLIST:
            return list(policy.allowed_hosts)
        return "internet"


def _dockerfile_workdir(path: Path) -> str | None:
    """The working directory of the last stage of a Dockerfile. Harbor's own reader needs one more package."""
    if not path.exists():
        return None
    workdir: str | None = None
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(None, 1)
        instruction = words[0].upper() if words else ""
        if instruction == "FROM":
            workdir = None
        elif instruction == "WORKDIR" and len(words) == 2:
            workdir = os.path.join(workdir or "/", words[1].strip().strip("\"'"))
    return workdir


def _remove(path: Path | str) -> None:
    if os.path.lexists(path):
        os.remove(path)
