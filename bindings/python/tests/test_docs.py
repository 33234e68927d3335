"""The examples of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = ("docs/python.md", "bindings/python/README.md")
ROOT = Path(__file__).resolve().parents[3]


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
        assert blocks, page
        found += [(f"{page}-{number}", block) for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_example(code: str) -> None:
    exec(compile(code, "example", "exec"), {"__name__": "example"})
