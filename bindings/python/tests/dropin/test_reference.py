"""Our results beside those of the reference package 0.2.0 on Docker, which are in `reference.json`.

`cargo xtask reference` records them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Bench, result_of

REFERENCE: dict[str, Any] = json.loads(Path(__file__).with_name("reference.json").read_text())

#: Cases in which we decided for another result, and why.
DIFFERENT = {
    "copy_file_out": "theirs creates an empty directory, ours copies the file into it",
    "episode_reasons": "theirs looks for the reasoning where its client does not put it",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_same_result(name: str, bench: Bench) -> None:
    ours = json.loads(json.dumps(result_of(CASES[name], bench)))
    if name in DIFFERENT:
        assert ours != REFERENCE[name], f"{name} is equal now: {DIFFERENT[name]}"
    else:
        assert ours == REFERENCE[name]


def test_every_case_was_recorded() -> None:
    assert sorted(REFERENCE) == sorted(CASES)
    assert set(DIFFERENT) <= set(CASES)
