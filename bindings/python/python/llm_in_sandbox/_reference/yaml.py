"""Reads YAML with the engine's parser, so that the package needs no other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .. import _native

__all__ = ["load"]


def load(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file (version 1.2) as plain Python values; `None` for an empty one.

    Raises `ValueError` where it is not YAML.
    """
    return json.loads(_native.yaml_to_json(Path(path).read_text(encoding="utf-8")))
