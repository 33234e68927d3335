"""`DockerRuntime`: a sandbox with the methods and results of the reference's class of this name.

On the native runtime unless `runtime="docker"` is passed. See docs/reference-users.md for what differs.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
from typing import Any

from ._constants import CMD_TIMEOUT, DOCKER_PATH
from ._handles import Closing
from ._reference import container as _container
from ._reference import images, options
from ._reference.logs import runtime_logger as get_logger

__all__ = ["DockerRuntime", "get_logger"]

#: Variables of every command, whatever the `environment` says.
_VARIABLES = {
    "PATH": DOCKER_PATH,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
#: Colors and carriage returns, which are removed from output.
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|\r")
#: Commands that only keep a container alive; a sandbox lives without one.
_IDLE = re.compile(r"sleep\b.*|tail -f\b.*|cat|(/usr)?(/bin/)?(ba)?sh")
#: Seconds after which a command is killed that ignores the signal sent at its timeout.
_GRACE = 5.0


class DockerRuntime(Closing):
    """A sandbox in which commands run and files are copied.

    `docker_image` is an image of our store (`llm-in-sandbox image list`); where there is none of this name, the sandbox
    has this machine's own programs and a warning says so once. `repo_path` is the working directory. `logger=False`
    shows only warnings. Other arguments are those of Docker's `containers.run` as far as sandboxes have them
    (`environment`, `mem_limit`, `nano_cpus`, `pids_limit`, `network_mode`), or of `Sandbox` (`memory`, `cpus`, `disk`,
    `processes`, `network`, `runtime`, `docker_host`).

    >>> runtime = DockerRuntime("host", repo_path="/testbed", logger=False)
    >>> runtime.run("echo hello")
    ('hello\\n', '0')
    >>> runtime.demux_run("echo oops >&2; exit 3")
    ('', 'oops\\n', 'Error: Exit code 3')
    >>> runtime.close()
    """

    def __init__(
        self,
        docker_image: str,
        repo_path: str = "/testbed",
        command: str = "sleep infinity",
        logger: logging.Logger | bool | None = None,
        **docker_kwargs: Any,
    ) -> None:
        self.client = _container.Client()
        self.container: _container.Container | None = None
        self.docker_image = docker_image
        self.repo_path = repo_path
        self.command = command
        self.docker_kwargs = docker_kwargs
        if isinstance(logger, logging.Logger):
            self.logger = logger
        elif logger is None:
            self.logger = get_logger("DockerRuntime")
        else:
            self.logger = get_logger("DockerRuntime.quiet", logging.WARNING)
        self.container_name = self._get_container_name(docker_image)
        self.start_container(docker_image, command, self.container_name, **docker_kwargs)
        self.setup_env()
        self.logger.info(f"sandbox {self._sandbox().id} of {docker_image} is ready")

    @staticmethod
    def _get_container_name(image_name: str) -> str:
        return f"{image_name.replace('/', '-').replace(':', '-')}-{secrets.token_hex(5)}"

    def start_container(self, docker_image: str, command: str, container_name: str, **docker_kwargs: Any) -> None:
        """Creates the sandbox, and starts the command unless it only keeps a container alive."""
        runtime = docker_kwargs.pop("runtime", "native")
        variables = _container.variables(docker_kwargs.get("environment"))
        arguments = options.sandbox_arguments(docker_kwargs, runtime)
        sandbox = images.create(
            docker_image, runtime=runtime, workdir=self.repo_path, env=variables | _VARIABLES, **arguments
        )
        self.container = _container.Container(sandbox, container_name)
        if command and not _IDLE.fullmatch(command.strip()):
            self.run(f"setsid {command} </dev/null >/dev/null 2>&1 &")

    def setup_env(self) -> None:
        """Creates the directories `input` and `output`, and a Git repository where there is Git."""
        path = self.repo_path
        self.run(f"mkdir -p {path}/input {path}/output; cd {path} && git init >/dev/null 2>&1 || true", workdir="/")

    def run(self, code: str, timeout: float = CMD_TIMEOUT, workdir: str | None = None) -> tuple[str, str]:
        """Runs a command with bash. Returns its output, both streams in one, and how it ended.

        That is `"0"`, `"Error: Exit code N"`, or `"-1"` after the timeout (in seconds) or a failure of the sandbox; the
        output then says which.
        """
        argv = _argv(code, timeout)
        try:
            ended = self._exec(argv, timeout, workdir, demux=False)
            output = _text(ended.output)
        except Exception as error:
            return f"Error: {error!r}", "-1"
        if ended.exit_code == 124:
            return _too_long(timeout), "-1"
        return output, _status(ended.exit_code)

    def demux_run(
        self, code: str, timeout: float = CMD_TIMEOUT, workdir: str | None = None
    ) -> tuple[str, str, str]:
        """Runs a command like `run`, but returns standard output and standard error apart."""
        argv = _argv(code, timeout)
        try:
            ended = self._exec(argv, timeout, workdir, demux=True)
            stdout, stderr = (_text(stream or b"") for stream in ended.output)
        except Exception as error:
            message = f"Error: {error!r}"
            return message, message, "-1"
        if ended.exit_code == 124:
            return _too_long(timeout), "", "-1"
        return stdout, stderr, _status(ended.exit_code)

    def _exec(self, argv: list[str], timeout: float, workdir: str | None, *, demux: bool) -> _container.ExecResult:
        limit = timeout + _GRACE if timeout else None
        container: Any = self.container
        ended: _container.ExecResult = container.exec_run(
            argv, workdir=workdir or self.repo_path, demux=demux, timeout=limit
        )
        return ended

    def copy_to_container(self, src_path: str, dest_path: str) -> None:
        """Copies a file or directory of this machine to exactly this path, creating missing directories."""
        os.stat(src_path)  # Raises what callers expect if there is none.
        self._sandbox().upload(src_path, dest_path)
        self.logger.info(f"copied {src_path} to {dest_path}")

    def copy_dir_to_container(self, src_dir: str, dest_dir: str) -> None:
        """Copies the content of a directory of this machine into a directory, which is created if missing."""
        os.listdir(src_dir)  # As above, and if it is not a directory.
        self._sandbox().upload(src_dir, dest_dir)
        self.logger.info(f"copied the directory {src_dir} to {dest_dir}")

    def copy_from_container(self, container_path: str, local_path: str) -> None:
        """Copies the content of a directory, or a file, into a directory of this machine, which is created if missing."""
        _container.copy_out(self._sandbox(), container_path, local_path)
        self.logger.info(f"copied {container_path} to {local_path}")

    def _sandbox(self) -> Any:
        container: Any = self.container
        return container.sandbox

    def get_task_instruction(self, problem_statement: str) -> str:
        """The problem statement, unchanged."""
        return problem_statement

    def close(self) -> None:
        """Ends all processes and removes the sandbox. Closing it again does nothing."""
        container, self.container = self.container, None
        if container is None:
            return
        try:
            container.stop()
            self.logger.info(f"removed the sandbox {container.id}")
        except Exception as error:
            self.logger.warning(f"cannot remove the sandbox: {error}")


def _argv(code: str, timeout: float) -> list[str]:
    # `timeout` ends the command in the sandbox: that its exit code is 124 is part of the interface.
    return ["bash", "-c", f"timeout {timeout} bash -c {shlex.quote(code)}"]


def _text(output: bytes) -> str:
    return _DECORATION.sub("", output.decode("utf-8", errors="replace"))


def _status(code: int | None) -> str:
    return "0" if code == 0 else f"Error: Exit code {code}"


def _too_long(timeout: float) -> str:
    return f"The command took too long to execute (>{timeout}s)"
