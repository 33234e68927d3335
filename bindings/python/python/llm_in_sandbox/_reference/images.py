"""Creates sandboxes for names of Docker images."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

from ..errors import ImageNotFound

if TYPE_CHECKING:
    from .. import Sandbox

__all__ = ["create"]

_missing: set[str] = set()
_lock = threading.Lock()


def create(image: str, **arguments: Any) -> Sandbox:
    """A sandbox of the stored image of this name, or of `host`, with one warning per process, if there is none.

    With `runtime="docker"` it is the daemon's image, and a missing one is an error.
    """
    from .. import Sandbox

    if arguments.get("runtime") == "docker":
        return Sandbox(image, **arguments)
    if image not in _missing:
        try:
            return Sandbox(image, **arguments)
        except ImageNotFound:
            _warn(image)
    return Sandbox("host", **arguments)


def _warn(image: str) -> None:
    with _lock:
        if image in _missing:
            return
        _missing.add(image)
    message = (
        f"there is no image `{image}` on this machine: sandboxes have this machine's own programs (image `host`)."
        f" For the image itself run `llm-in-sandbox image pull {image}`, or pass runtime='docker'"
    )
    warnings.warn(message, stacklevel=5)
