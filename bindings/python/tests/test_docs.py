"""The examples of the documentation."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGES = ("docs/python.md", "docs/reference-users.md", "bindings/python/README.md")
ROOT = Path(__file__).resolve().parents[3]
#: The server that examples name.
SERVER = "http://localhost:8000/v1"
# After this directory, which has a `conftest` as well.
sys.path.append(str(Path(__file__).with_name("dropin")))

import chat_server  # noqa: E402


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
        assert blocks, page
        found += [(f"{page}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.fixture
def server() -> Iterator[str]:
    script = [chat_server.call("execute_bash", {"command": "ls /etc | wc -l"}), chat_server.call("submit", {})]
    with chat_server.start(script) as started:
        yield started.url


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_example(code: str, server: str) -> None:
    with warnings.catch_warnings():
        # An image that is not in the store.
        warnings.simplefilter("ignore", UserWarning)
        exec(compile(code.replace(SERVER, server), "example", "exec"), {"__name__": "example"})
