"""Constants of the reference's interface."""

from typing import Final

#: Seconds until a command of `DockerRuntime` is ended.
CMD_TIMEOUT: Final = 120

_HOME: Final = "/root"

#: `PATH` of the commands of `DockerRuntime`.
DOCKER_PATH: Final = (
    f"{_HOME}/.local/bin:{_HOME}/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
