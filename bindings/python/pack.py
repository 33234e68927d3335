"""Packs a wheel from files that cargo has built already, for the tests.

`cargo xtask wheel` uses maturin, which builds with cargo itself, in other combinations of features than those of the whole workspace; in the
test run that would compile most crates a second time. The Python files and `pyproject.toml` are the same.

    python3 pack.py PROGRAM EXTENSION VERSION OUT
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import zipfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Before Python 3.11.
    from pip._vendor import tomli as tomllib

TAG = "cp310-abi3-linux_x86_64"


def main(program: str, extension: str, version: str, out: str) -> None:
    root = Path(__file__).resolve().parent
    with open(root / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    stem = f"llm_in_sandbox-{version}"
    info = f"{stem}.dist-info"
    path = Path(out) / f"{stem}-{TAG}.whl"
    record: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:

        def add(name: str, data: bytes, mode: int = 0o644) -> None:
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        source = root / "python"
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                add(str(file.relative_to(source)), file.read_bytes())
        add("llm_in_sandbox/_native.abi3.so", Path(extension).read_bytes(), 0o755)
        add(f"{stem}.data/scripts/llm-in-sandbox", Path(program).read_bytes(), 0o755)
        lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}"]
        lines.append(f"Requires-Python: {project['requires-python']}")
        lines += [f"Requires-Dist: {name}" for name in project.get("dependencies", [])]
        add(f"{info}/METADATA", "\n".join([*lines, ""]).encode())
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode())
        points = dict(project.get("entry-points", {}))
        if project.get("scripts"):
            points["console_scripts"] = project["scripts"]
        text = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in points.items()
        )
        if text:
            add(f"{info}/entry_points.txt", text.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, ""]))
    print(os.fspath(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
