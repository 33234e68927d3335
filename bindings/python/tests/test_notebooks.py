"""The notebooks of `examples/notebooks`, and what they show."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from conftest import missing

from llm_in_sandbox import Agent, Progress

NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "examples/notebooks").glob("*.ipynb"))


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["agent", "benchmark"]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in NOTEBOOKS])
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nbclient", "nbformat", "ipykernel"):
        if importlib.util.find_spec(name) is None:
            missing("notebooks", f"{name} is not installed")
    import nbformat
    from nbclient import NotebookClient

    # The kernel of this interpreter, whichever is installed for the user.
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not stored"
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[Any] = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "submitted" in pages[-1] and "execute_bash" in pages[-1]
    if path.stem == "agent":
        # The last state of what was shown while the episode ran, then the trajectory.
        assert len(pages) == 2 and "<table>" in pages[0] and "running" not in pages[0]


def hostile(messages: list[Any], tools: list[Any]) -> Any:
    text = "<script>alert(1)</script>\u202e\x1b[31m"
    if messages[-1]["role"] == "user":
        call = {"name": "execute_bash", "arguments": {"command": f"echo '{text}' > output/x.png; exit 3"}}
    else:
        call = {"name": "submit", "arguments": {}}
    return {"content": text, "tool_calls": [{"id": "1", "function": call}]}


def test_what_a_model_wrote_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    trajectory = Agent(hostile).run("<img src=x onerror=alert(1)>", on_event=progress)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("turn 1: execute_bash echo '<script>") and "  exit code 3" in lines
    assert lines[-1] == "ended: submitted"
    assert "\x1b" not in "".join(lines) and "\u202e" not in "".join(lines)
    for page in (trajectory._repr_html_(), progress._repr_html_()):
        assert "<script>" not in page and "<img" not in page and "&lt;img" in page
        assert "\u202e" not in page and "\x1b" not in page
        assert "exit code 3" in page


def test_images_are_shown() -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

    def model(messages: list[Any], tools: list[Any]) -> Any:
        command = {"command": f"echo {png} | base64 -d > output/x.png"}
        name, arguments = ("execute_bash", command) if messages[-1]["role"] == "user" else ("submit", {})
        return {"content": "", "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]}

    assert f'src="data:image/png;base64,{png}"' in Agent(model).run("x")._repr_html_()


def test_long_episodes_stay_short() -> None:
    def model(messages: list[Any], tools: list[Any]) -> Any:
        return {"content": "", "tool_calls": [{"id": str(n), "function": {"name": "execute_bash", "arguments": {"command": f"echo {n}"}}} for n in range(50)]}

    trajectory = Agent(model, max_turns=5, max_tokens=10_000_000).run("x")
    page = trajectory._repr_html_()
    assert len(trajectory.steps) == 250 and page.count("<details>") == 200 and "50 steps are left out" in page


