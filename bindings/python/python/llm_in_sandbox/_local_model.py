"""The embedded model: the program serves it on this machine's loopback address, to this process only."""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import subprocess
import threading
import time
import urllib.request
from http.client import HTTPException
from typing import IO, Any

from ._engine import find_program
from .errors import ModelError

__all__ = ["LocalModel", "local_model"]

_KEY = "LLM_IN_SANDBOX_LOCAL_KEY"
_ADDRESS = re.compile(r"at (http://\S+/v1)")
#: Without the proxy of the environment, which would get the key.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalModel:
    """A running server of an embedded model. It ends with this process."""

    def __init__(self, name: str, timeout: float = 3600.0) -> None:
        self.name = name
        self.api_key = secrets.token_urlsafe(24)
        words = [find_program(), "model", "serve", "--port", "0", "--api-key-env", _KEY]
        # As the command line runs small models: one block of commands, which every response must end with.
        words += ["--tool-format", "fenced", "--force-calls", "yes", "--exit-with-stdin"]
        if name != "local":
            words.append(name)
        self._lines: list[str] = []
        self._ready = threading.Event()
        self.base_url = ""
        self._process = subprocess.Popen(
            words,
            # Never written to: it closes when this process ends, however that happens.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, _KEY: self.api_key},
            start_new_session=True,
        )
        try:
            assert self._process.stderr is not None
            reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
            reader.start()
            self._wait(timeout)
            self.served_name = self._served_name()
        except BaseException:
            # Nobody else knows the server yet.
            self.close()
            raise

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._lines = [*self._lines[-20:], line.rstrip()]
            found = _ADDRESS.search(line)
            if found:
                self.base_url = found.group(1)
                self._ready.set()
        self._ready.set()

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        # In steps, so that a signal is handled.
        while not self._ready.wait(0.1):
            if time.monotonic() > deadline:
                raise ModelError(f"the model `{self.name}` was not loaded within {timeout:.0f} s")
        if not self.base_url:
            raise ModelError(
                f"the model `{self.name}` cannot be loaded: {' '.join(self._lines[-3:])}"
            )

    def _served_name(self) -> str:
        """The model's name at the server, which for a file is not its path."""
        request = urllib.request.Request(
            f"{self.base_url}/models", headers={"Authorization": f"Bearer {self.api_key}"}
        )
        try:
            with _direct.open(request, timeout=30) as response:
                listed: Any = json.load(response)
            return str(listed["data"][0]["id"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            raise ModelError(f"the server of the model `{self.name}` does not list it: {error}") from error

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the server."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_models: dict[str, LocalModel] = {}
_lock = threading.Lock()


def local_model(name: str) -> LocalModel:
    """The server of an embedded model, started at its first use."""
    with _lock:
        found = _models.get(name)
        if found is None or not found.running:
            found = _models[name] = LocalModel(name)
        return found


@atexit.register
def _close_all() -> None:
    for model in _models.values():
        model.close()
    _models.clear()


def _after_fork() -> None:
    # They are the parent's.
    global _lock
    _models.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
