"""Temporary directories. Those of processes that were killed are removed by the next process that creates one."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import time
from types import TracebackType

__all__ = ["Scratch", "until_exit"]

_PREFIX = "llm-in-sandbox-work-"


class Scratch:
    """A directory that is removed at the end of a `with`. It is locked for as long as its process lives.

    A forked process that leaves the `with` as well leaves the directory to its parent.
    """

    def __enter__(self) -> Scratch:
        self._process = os.getpid()
        parent = tempfile.gettempdir()
        _remove_leftovers(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Another process may have taken it for a leftover before it was locked.
            if os.path.isdir(self.path):
                return self
            os.close(self._lock)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process != os.getpid():
            # The lock stays the parent's: it is that of both descriptors.
            os.close(self._lock)
            return
        # Again, if a copy that was cancelled has just written.
        for _ in range(100):
            shutil.rmtree(self.path, ignore_errors=True)
            if not os.path.lexists(self.path):
                break
            time.sleep(0.02)
        os.close(self._lock)

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)


_kept: list[Scratch] = []


def until_exit() -> str:
    """The path of a new directory that is removed when the interpreter exits."""
    made = Scratch().__enter__()
    _kept.append(made)
    return made.path


@atexit.register
def _remove_kept() -> None:
    for scratch in _kept:
        scratch.__exit__(None, None, None)


def _remove_leftovers(parent: str) -> None:
    """Removes directories of this user whose lock nobody holds."""
    for name in os.listdir(parent):
        if not name.startswith(_PREFIX):
            continue
        path = os.path.join(parent, name)
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            status = os.fstat(opened)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(opened)
