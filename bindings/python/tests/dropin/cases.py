"""Cases whose results the reference package and ours have to share. Runs with either installed.

`python cases.py IMAGE [NAME...]` prints the results as JSON: with the reference on Docker (`DOCKER_HOST`), with ours natively.
Sentences that only advise a model are in each package's own words, so they are masked by their place in the text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chat_server
import llm_in_sandbox
from llm_in_sandbox import Action, Agent, AgentArgs, DockerRuntime, Trajectory, TrajectoryStep

Case = Callable[["Bench"], Any]
CASES: dict[str, Case] = {}


class Bench:
    """One runtime for all cases, and a directory of the host."""

    def __init__(self, image: str) -> None:
        self.image = image
        # Clients want one, although the scripted server does not.
        os.environ["OPENAI_API_KEY"] = "dummy"
        self.runtime = DockerRuntime(docker_image=image, repo_path="/testbed", logger=False)
        self.host = Path(tempfile.mkdtemp())

    def new_runtime(self, **arguments: Any) -> Any:
        return DockerRuntime(docker_image=self.image, logger=False, **arguments)

    def act(self, name: str, parameters: Any) -> str:
        agent = Agent.__new__(Agent)
        return masked(name, agent._execute_action(Action(name, parameters), self.runtime))


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def add(name: str, function: Case) -> None:
    assert name not in CASES, name
    CASES[name] = function


def masked(name: str, text: str) -> str:
    """An observation without the sentences that are each package's own."""
    from llm_in_sandbox.observation import CONTINUE_MSG

    if text == CONTINUE_MSG:
        return "(no call)"
    text = re.sub(r"<response clipped>.*?</NOTE>", "(clipped)", text, flags=re.DOTALL)
    text = re.sub(r"-{50}\n<[^\n]*>\n-{50}", "(lines left out)", text)
    if name == "str_replace_editor":
        if re.match(r"Execution output of \\\[str_replace_editor]:\n(File created|The file .* has been edited)", text):
            text = text.rsplit("\n", 1)[0] + "\n(advice)"
        text = re.sub(r"\nERROR: .*'(/[^']*)'.*", r"\nERROR: (not shown) \1", text)
    return text


def short(value: Any) -> Any:
    """Long texts as their length, start and hash."""
    if isinstance(value, str) and len(value) > 3000:
        return [len(value), value[:100], hashlib.sha256(value.encode()).hexdigest()]
    if isinstance(value, (list, tuple)):
        return [short(item) for item in value]
    if isinstance(value, dict):
        return {name: short(item) for name, item in value.items()}
    return value


def result_of(function: Case, bench: Bench) -> Any:
    """The result of a case, or the kind of exception it raises."""
    try:
        return short(function(bench))
    except Exception as error:
        return {"raises": type(error).__name__}


# Commands: the results of `run` and `demux_run`.

COMMANDS = {
    "true": "true",
    "false": "false",
    "empty": "",
    "blank": "  \n ",
    "comment": "# nothing",
    "exit_3": "exit 3",
    "exit_124": "echo before; exit 124",
    "exit_255": "exit 255",
    "killed": "kill -9 $$",
    "terminated": "echo x; kill -TERM $$",
    "segfault": "ulimit -c 0; kill -SEGV $$",
    "not_found": "no-such-command-here 2>/dev/null",
    "not_executable": "touch plain; ./plain 2>/dev/null",
    "syntax_error": "bash -c 'if true; then' 2>/dev/null",
    "no_line_break": "printf end",
    "streams": "echo out; sleep 0.3; echo err >&2; sleep 0.3; echo out again",
    "only_stderr": "echo oops >&2; exit 1",
    "unicode": "echo 'grüße 世界 🦀'",
    "not_utf8": r"printf 'a\xff\xfe\xc3(b'",
    "cut_utf8": r"printf '\xe4\xb8'",
    "nul": r"printf 'a\0b'",
    "carriage_returns": r"printf 'one\rtwo\r\nthree\r'",
    "colors": r"printf '\033[31mred\033[0m \033[1;32mgreen\033[m'",
    "other_escapes": r"printf '\033[2J\033[?25l\033]0;t\007x'",
    "tabs": r"printf 'a\tb'",
    "many_lines": "seq 1 200000",
    "long_line": r"head -c 1000000 /dev/zero | tr '\0' x",
    "binary": "head -c 5000 /dev/zero",
    "quotes": """echo 'single' "double" `echo back` \\$HOME '"' "'" """,
    "several_lines": "x=1\nfor i in 1 2 3; do\n  x=$((x + i))\ndone\necho $x",
    "here_document": "cat << 'EOF'\nline $x\n\tindented\nEOF",
    "pipeline_status": "false | true",
    "pipefail": "set -o pipefail; false | true",
    "stdin_is_empty": "cat; read line; echo $?",
    "stdin_is_no_terminal": "test -t 0; echo $?; test -t 1; echo $?",
    "path": "echo ${PATH//$HOME/HOME}",
    "pip_variables": "env | grep ^PIP_ | sort",
    "working_directory": "pwd",
    "user": "id -u; whoami",
    "home": "echo ~ $HOME",
    "shell_level": "echo $0",
    "python": "python3 -c 'import sys; print(1 + 1); sys.exit(5)'",
    "python_order": "python3 -uc 'import sys\nfor i in range(3): print(i); print(-i, file=sys.stderr)' 2>&1",
    "directories": "ls -d input output",
    "permissions": "umask; touch new; stat -c %a new; rm new",
    "proc_self": "test -r /proc/self/status && echo yes",
    "dev": "echo x > /dev/null; head -c 4 /dev/urandom | wc -c",
    "tmp": "touch /tmp/x && echo writable",
    "root_is_writable": "mkdir /new-directory && echo made && rmdir /new-directory",
    "loopback": "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); print(s.getsockname()[0])'",
}

for _name, _command in COMMANDS.items():
    add(f"run_{_name}", lambda bench, command=_command: bench.runtime.run(command))
    add(f"demux_{_name}", lambda bench, command=_command: bench.runtime.demux_run(command))


@case
def much_of_both_streams(bench: Bench) -> Any:
    return bench.runtime.demux_run("seq 1 50000; seq 1 50000 >&2")


@case
def no_state_between_commands(bench: Bench) -> Any:
    bench.runtime.run("cd /tmp; export X=1; Y=2; alias z=ls; f() { :; }")
    return bench.runtime.run("pwd; echo ${X-unset} ${Y-unset}; type f 2>/dev/null || echo no f")


@case
def files_last(bench: Bench) -> Any:
    bench.runtime.run("echo kept > kept.txt")
    return bench.runtime.run("cat /testbed/kept.txt; rm kept.txt")


@case
def background_programs_last(bench: Bench) -> Any:
    started = bench.runtime.run("(sleep 1; echo late > late.txt) >/dev/null 2>&1 & echo started")
    time.sleep(2.5)
    return [started, bench.runtime.run("cat late.txt; rm -f late.txt")]


@case
def timeout_of_run(bench: Bench) -> Any:
    started = time.time()
    return [bench.runtime.run("echo before; sleep 30; echo after", timeout=1), time.time() - started < 10]


@case
def timeout_of_demux_run(bench: Bench) -> Any:
    return bench.runtime.demux_run("echo before; echo err >&2; sleep 30", timeout=1)


@case
def timeout_fraction(bench: Bench) -> Any:
    return bench.runtime.run("sleep 30", timeout=0.5)


@case
def timeout_of_children(bench: Bench) -> Any:
    ended = bench.runtime.run("sleep 987 & sleep 987 | sleep 987", timeout=1)
    return [ended, bench.runtime.run("sleep 0.3; grep -lzs '^987$' /proc/[0-9]*/cmdline | wc -l")]


@case
def timeout_zero_is_none(bench: Bench) -> Any:
    return bench.runtime.run("sleep 0.2; echo done", timeout=0)


@case
def usable_after_timeout(bench: Bench) -> Any:
    bench.runtime.run("sleep 30", timeout=1)
    return bench.runtime.run("echo fine")


@case
def exit_right_before_timeout(bench: Bench) -> Any:
    return bench.runtime.run("sleep 0.2; echo done; exit 4", timeout=20)


@case
def workdir_given(bench: Bench) -> Any:
    return [bench.runtime.run("pwd", workdir="/tmp"), bench.runtime.demux_run("pwd", workdir="/")]


@case
def workdir_missing(bench: Bench) -> Any:
    # The text is the runtime's own.
    return [status for *_, status in (bench.runtime.run("pwd", workdir="/no/such"),)]


@case
def positional_arguments(bench: Bench) -> Any:
    return [bench.runtime.run("pwd", 10, "/tmp"), bench.runtime.demux_run("pwd", 10, "/tmp")]


@case
def command_that_is_bytes(bench: Bench) -> Any:
    return bench.runtime.demux_run(b"echo x")


@case
def types_of_results(bench: Bench) -> Any:
    results = [bench.runtime.run("echo x"), bench.runtime.demux_run("echo x")]
    return [[type(result).__name__, [type(item).__name__ for item in result]] for result in results]


@case
def repo_path(bench: Bench) -> Any:
    runtime = bench.new_runtime(repo_path="/some/deep/path")
    try:
        return [runtime.run("pwd; ls | sort"), runtime.repo_path, runtime.docker_image == bench.image]
    finally:
        runtime.close()


@case
def environment(bench: Bench) -> Any:
    variables = {"MINE": "a b", "PIP_ROOT_USER_ACTION": "warn"}
    runtime = bench.new_runtime(environment=variables)
    try:
        return runtime.run("echo $MINE; echo $PIP_ROOT_USER_ACTION")
    finally:
        runtime.close()


@case
def memory_limit(bench: Bench) -> Any:
    runtime = bench.new_runtime(mem_limit="128m", memswap_limit="128m")
    try:
        return runtime.run("python3 -c 'x = b\"x\" * (512 << 20)'")[1]
    finally:
        runtime.close()


@case
def network_of_none(bench: Bench) -> Any:
    runtime = bench.new_runtime(network_mode="none")
    try:
        return runtime.run("wc -l < /proc/net/route; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
    finally:
        runtime.close()


@case
def closing(bench: Bench) -> Any:
    runtime = bench.new_runtime()
    runtime.close()
    again = runtime.close()
    texts = runtime.run("true"), runtime.demux_run("true")
    statuses = [text[0].startswith("Error: ") and text[-1] for text in texts]
    return [runtime.container, again, statuses, runtime.get_task_instruction("do it")]


@case
def attributes(bench: Bench) -> Any:
    runtime = bench.runtime
    name = re.sub(r"[0-9a-f]{10}$", "HEX", runtime.container_name)
    prefix = bench.image.replace("/", "-").replace(":", "-")
    return [name == f"{prefix}-HEX", runtime.command, runtime.docker_kwargs, isinstance(runtime.container.id, str)]


@case
def constants(bench: Bench) -> Any:
    return [llm_in_sandbox.CMD_TIMEOUT, llm_in_sandbox.DOCKER_PATH.replace("/root/", "HOME/")]


@case
def container_exec(bench: Bench) -> Any:
    ended = bench.runtime.container.exec_run(["sh", "-c", "echo $A; echo e >&2; exit 2"], environment={"A": "1"}, demux=True)
    return [ended.exit_code, [stream.decode() for stream in ended.output]]


# Copies.


def tree(path: Path) -> Any:
    entries = []
    for entry in sorted(path.rglob("*")):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            entries.append([name, "->", os.readlink(entry)])
        elif entry.is_dir():
            entries.append([name, "directory"])
        else:
            entries.append([name, oct(entry.stat().st_mode & 0o777), entry.read_bytes().hex()[:200]])
    return entries


def sample(path: Path) -> Path:
    (path / "sub" / "empty").mkdir(parents=True)
    (path / "plain.txt").write_text("text\n")
    (path / "binary").write_bytes(bytes(range(256)))
    (path / "sub" / "grüße 世界.txt").write_text("x")
    (path / "sub" / "with space").write_text("")
    (path / "script.sh").write_text("#!/bin/sh\necho ran\n")
    (path / "script.sh").chmod(0o755)
    (path / "link").symlink_to("plain.txt")
    (path / ".hidden").write_text("h")
    return path


LIST = "cd {} && find . | LC_ALL=C sort && stat -c '%a %n' script.sh plain.txt && cat link && ./script.sh"


@case
def copy_directory_in_and_out(bench: Bench) -> Any:
    source = sample(bench.host / "tree")
    bench.runtime.copy_dir_to_container(str(source), "/testbed/deep/tree")
    listed = bench.runtime.run(LIST.format("/testbed/deep/tree"))
    bench.runtime.copy_from_container("/testbed/deep/tree", str(bench.host / "back" / "tree"))
    return [listed, tree(bench.host / "back" / "tree")]


@case
def copy_directory_into_existing(bench: Bench) -> Any:
    source = bench.host / "update"
    source.mkdir()
    (source / "a").write_text("new")
    bench.runtime.run("mkdir -p /testbed/old/sub; echo old > /testbed/old/a; echo b > /testbed/old/b")
    bench.runtime.copy_dir_to_container(str(source), "/testbed/old")
    return bench.runtime.run("cd /testbed/old && find . | sort && cat a b")


@case
def copy_directory_merges_below(bench: Bench) -> Any:
    source = bench.host / "merge"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "new").write_text("n")
    bench.runtime.run("mkdir -p /testbed/merged/sub; echo o > /testbed/merged/sub/old")
    bench.runtime.copy_dir_to_container(str(source), "/testbed/merged")
    return bench.runtime.run("cd /testbed/merged && find . | sort")


@case
def copy_empty_directory(bench: Bench) -> Any:
    (bench.host / "empty").mkdir()
    bench.runtime.copy_dir_to_container(str(bench.host / "empty"), "/testbed/empty")
    bench.runtime.copy_from_container("/testbed/empty", str(bench.host / "empty back"))
    return [bench.runtime.run("ls -A /testbed/empty"), tree(bench.host / "empty back")]


@case
def copy_file_in(bench: Bench) -> Any:
    (bench.host / "file").write_bytes(b"\x00\xff\n" * 1000)
    bench.runtime.copy_to_container(str(bench.host / "file"), "/testbed/made/here/renamed")
    return bench.runtime.run("cd /testbed/made && find . | sort && sha256sum here/renamed")


@case
def copy_large_file(bench: Bench) -> Any:
    (bench.host / "large").write_bytes(b"0123456789abcdef" * (1 << 20))
    bench.runtime.copy_to_container(str(bench.host / "large"), "/testbed/large")
    bench.runtime.run("mkdir out && mv large out")
    bench.runtime.copy_from_container("/testbed/out", str(bench.host / "large back"))
    copied = (bench.host / "large back" / "large").read_bytes()
    return [len(copied), hashlib.sha256(copied).hexdigest()]


@case
def copy_file_over(bench: Bench) -> Any:
    (bench.host / "over").write_text("new\n")
    bench.runtime.run("echo old old > /testbed/over; chmod 600 /testbed/over")
    bench.runtime.copy_to_container(str(bench.host / "over"), "/testbed/over")
    return bench.runtime.run("cat /testbed/over")


@case
def copy_directory_as_file(bench: Bench) -> Any:
    source = bench.host / "whole"
    source.mkdir()
    (source / "x").write_text("x")
    bench.runtime.copy_to_container(str(source), "/testbed/whole-copy")
    return bench.runtime.run("cd /testbed/whole-copy && find . | sort")


@case
def copy_missing_file_in(bench: Bench) -> Any:
    bench.runtime.copy_to_container(str(bench.host / "no such"), "/testbed/x")


@case
def copy_missing_directory_in(bench: Bench) -> Any:
    bench.runtime.copy_dir_to_container(str(bench.host / "no such"), "/testbed/x")


@case
def copy_missing_out(bench: Bench) -> Any:
    try:
        bench.runtime.copy_from_container("/testbed/no/such", str(bench.host / "nothing"))
    except Exception:
        return "raises"  # Docker's own class, or ours.


@case
def copy_file_out(bench: Bench) -> Any:
    bench.runtime.run("echo single > /testbed/single.txt")
    bench.runtime.copy_from_container("/testbed/single.txt", str(bench.host / "single"))
    return tree(bench.host / "single")


@case
def copy_out_with_slash(bench: Bench) -> Any:
    bench.runtime.run("mkdir -p slash/sub && echo 1 > slash/sub/f")
    bench.runtime.copy_from_container("/testbed/slash/", str(bench.host / "slash"))
    return tree(bench.host / "slash")


@case
def copy_out_over_existing(bench: Bench) -> Any:
    local = bench.host / "existing"
    (local / "sub").mkdir(parents=True)
    (local / "sub" / "mine").write_text("m")
    (local / "same").write_text("old")
    bench.runtime.run("mkdir -p ex/sub && echo theirs > ex/sub/theirs && echo new > ex/same")
    bench.runtime.copy_from_container("/testbed/ex", str(local))
    return tree(local)


# Actions.

PROGRAM = "def f():\n\treturn 1\n\n\ndef g():\n    return 2\n"
LONG = "".join(f"line {number}\n" for number in range(1, 2001))
EDITS: dict[str, list[dict[str, Any]]] = {
    "create": [{"command": "create", "path": "{}/a.py", "file_text": PROGRAM}],
    "create_without_text": [{"command": "create", "path": "{}/a.py"}],
    "create_number": [{"command": "create", "path": "{}/a.txt", "file_text": 42}],
    "create_deep": [{"command": "create", "path": "{}/x/y/z.txt", "file_text": "z"}],
    "create_over": [
        {"command": "create", "path": "{}/a.txt", "file_text": "one"},
        {"command": "create", "path": "{}/a.txt", "file_text": "two"},
    ],
    "create_special": [{"command": "create", "path": "{}/a.txt", "file_text": "it's \"$HOME\" `x` \\n % 世界\t🦀"}],
    "create_long": [{"command": "create", "path": "{}/a.py", "file_text": LONG}],
    "create_at_directory": [{"command": "create", "path": "/tmp", "file_text": "x"}],
    "view": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "view", "path": "{}/a.py"},
    ],
    "view_range": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "view", "path": "{}/a.py", "view_range": [2, 4]},
        {"command": "view", "path": "{}/a.py", "view_range": [5, -1]},
        {"command": "view", "path": "{}/a.py", "view_range": [1, 1]},
        {"command": "view", "path": "{}/a.py", "view_range": [0, 2]},
        {"command": "view", "path": "{}/a.py", "view_range": [3, 2]},
        {"command": "view", "path": "{}/a.py", "view_range": [1, 99]},
        {"command": "view", "path": "{}/a.py", "view_range": [99, 100]},
        {"command": "view", "path": "{}/a.py", "view_range": [2]},
        {"command": "view", "path": "{}/a.py", "view_range": []},
    ],
    "view_long": [
        {"command": "create", "path": "{}/a.py", "file_text": LONG},
        {"command": "view", "path": "{}/a.py"},
        {"command": "view", "path": "{}/a.py", "view_range": [1500, 1502]},
    ],
    "view_text": [
        {"command": "create", "path": "{}/a.txt", "file_text": "x"},
        {"command": "view", "path": "{}/a.txt"},
    ],
    "view_rst": [
        {"command": "create", "path": "{}/a.rst", "file_text": "Title"},
        {"command": "view", "path": "{}/a.rst"},
    ],
    "view_missing": [{"command": "view", "path": "{}/none.py"}],
    "view_wrong_range": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "view", "path": "{}/a.py", "view_range": ["1", "2"]},
    ],
    "replace": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "return 2", "new_str": "return 3\n    # more"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "\treturn 1", "new_str": "\treturn 0"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "def g", "new_str": ""},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "():"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "not there", "new_str": "x"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "", "new_str": "x"},
        {"command": "str_replace", "path": "{}/a.py", "new_str": "x"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "    # more"},
    ],
    "replace_in_long": [
        {"command": "create", "path": "{}/a.py", "file_text": LONG},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "line 1000\n", "new_str": "a\nb\nc\nd\n"},
        {"command": "str_replace", "path": "{}/a.py", "old_str": "line 2000", "new_str": LONG},
    ],
    "replace_special": [
        {"command": "create", "path": "{}/a.txt", "file_text": "a 'b' \\ $x"},
        {"command": "str_replace", "path": "{}/a.txt", "old_str": "'b' \\", "new_str": "\"c\" `d` \\\\ 世"},
    ],
    "replace_missing_file": [{"command": "str_replace", "path": "{}/none.txt", "old_str": "x", "new_str": "y"}],
    "replace_number": [
        {"command": "create", "path": "{}/a.txt", "file_text": "1"},
        {"command": "str_replace", "path": "{}/a.txt", "old_str": 1, "new_str": 2},
    ],
    "insert": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "insert", "path": "{}/a.py", "insert_line": 0, "new_str": "# top"},
        {"command": "insert", "path": "{}/a.py", "insert_line": 5, "new_str": "# middle\n\t# second"},
        {"command": "insert", "path": "{}/a.py", "new_str": "# default"},
        {"command": "insert", "path": "{}/a.py", "insert_line": 14, "new_str": "# end"},
        {"command": "insert", "path": "{}/a.py", "insert_line": 99, "new_str": "x"},
        {"command": "insert", "path": "{}/a.py", "insert_line": -1, "new_str": "x"},
        {"command": "insert", "path": "{}/a.py", "insert_line": 1, "new_str": ""},
        {"command": "insert", "path": "{}/a.py", "insert_line": 1},
    ],
    "insert_into_missing": [{"command": "insert", "path": "{}/none.txt", "insert_line": 0, "new_str": "x"}],
    "insert_wrong_line": [
        {"command": "create", "path": "{}/a.py", "file_text": PROGRAM},
        {"command": "insert", "path": "{}/a.py", "insert_line": "2", "new_str": "x"},
    ],
    "undo": [{"command": "undo_edit", "path": "{}/a.py"}],
    "unknown_command": [{"command": "delete", "path": "{}/a.py"}],
    "without_command": [{"path": "{}/a.py"}],
    "without_path": [{"command": "view"}],
    "empty_arguments": [{}],
    "relative_path": [
        {"command": "create", "path": "relative.py", "file_text": "x"},
        {"command": "view", "path": "relative.py"},
    ],
    "home_path": [
        {"command": "create", "path": "~/at-home.py", "file_text": "x"},
        {"command": "view", "path": "~/at-home.py"},
    ],
}


def edits(bench: Bench, calls: list[dict[str, Any]], directory: str) -> Any:
    bench.runtime.run(f"rm -rf {directory}; mkdir -p {directory}")
    results = []
    for call in calls:
        parameters = dict(call)
        if "path" in parameters:
            parameters["path"] = parameters["path"].format(directory)
        try:
            results.append(bench.act("str_replace_editor", parameters))
        except Exception as error:
            results.append({"raises": type(error).__name__})
    files = bench.runtime.run(f"cd {directory} && find . -type f | sort | xargs -r sha256sum")
    return [*results, files]


for _name, _calls in EDITS.items():
    add(f"edit_{_name}", lambda bench, calls=_calls, name=_name: edits(bench, calls, f"/testbed/edit/{name}"))


@case
def edit_view_directory(bench: Bench) -> Any:
    bench.runtime.run("mkdir -p d/sub/deeper/x d/.hidden && touch d/a.py d/b.txt d/sub/c.rst d/sub/deeper/e.py d/.h.py")
    shown = bench.act("str_replace_editor", {"command": "view", "path": "/testbed/d"})
    # In the order of the file system.
    head, *lines = shown.split("\n")[1:]
    return [head, sorted(lines)]


@case
def edit_empty_file(bench: Bench) -> Any:
    bench.runtime.run("touch empty.py")
    calls = [{"command": "view"}, {"command": "str_replace", "old_str": "x"}, {"command": "insert", "new_str": "x"}]
    return [bench.act("str_replace_editor", {"path": "/testbed/empty.py", **call}) for call in calls]


@case
def edit_file_with_carriage_returns(bench: Bench) -> Any:
    bench.runtime.run(r"printf 'a\r\nb\r\n' > /testbed/crlf.py")
    bench.act("str_replace_editor", {"command": "str_replace", "path": "/testbed/crlf.py", "old_str": "b", "new_str": "c"})
    return bench.runtime.run("od -c /testbed/crlf.py")


BASH = {
    "echo": {"command": "echo hello"},
    "both": {"command": "echo out; echo err >&2; exit 2"},
    "silent": {"command": "true"},
    "only_stderr": {"command": "echo err >&2"},
    "blank_output": {"command": "echo '   '"},
    "lines_80": {"command": "seq 1 80"},
    "lines_81": {"command": "seq 1 81"},
    "lines_of_both": {"command": "seq 1 100; seq 1 100 >&2"},
    "empty": {"command": ""},
    "missing": {},
    "other_argument": {"cmd": "ls"},
    "brackets": {"command": "echo '[bold]x[/bold]'"},
    "unicode_lines": {"command": r"printf 'a\x0bb\x0cc\xe2\x80\xa8d\n'"},
}
for _name, _parameters in BASH.items():
    add(f"bash_{_name}", lambda bench, parameters=_parameters: bench.act("execute_bash", parameters))

OTHER_ACTIONS: dict[str, tuple[str, Any]] = {
    "submit": ("submit", {}),
    "submit_with_arguments": ("submit", {"answer": "x"}),
    "unknown_tool": ("browse", {"url": "x"}),
    "finish": ("finish", {}),
    "no_tool": ("", {}),
    "no_name": (None, {}),  # type: ignore[dict-item]
    "text_arguments_bash": ("execute_bash", "ls"),
    "text_arguments_editor": ("str_replace_editor", "view"),
    "no_arguments": ("execute_bash", None),
    "list_arguments": ("submit", ["x"]),
}
for _name, (_tool, _parameters) in OTHER_ACTIONS.items():
    add(f"action_{_name}", lambda bench, tool=_tool, parameters=_parameters: bench.act(tool, parameters))


@case
def action_timeout_is_shown(bench: Bench) -> Any:
    class Slow:
        def demux_run(self, command: str) -> Any:
            return bench.runtime.demux_run(command, timeout=1)

    agent = Agent.__new__(Agent)
    return agent._execute_action(Action("execute_bash", {"command": "sleep 30"}), Slow())


@case
def action_object(bench: Bench) -> Any:
    action = Action(function_name="f", parameters={"a": 1}, function_id="7")
    return [str(action), action.to_dict(), action.function_name, action.parameters]


@case
def tools(bench: Bench) -> Any:
    from llm_in_sandbox import tools

    def shape(value: Any) -> Any:
        if isinstance(value, list):
            return [shape(item) for item in value]
        if isinstance(value, dict):
            return {name: shape(item) for name, item in value.items() if name != "description"}
        return value

    listed = [tools.str_replace_editor_tool, tools.execute_bash_tool, tools.submit_tool]
    return [shape(listed), tools.ALLOWED_STR_REPLACE_EDITOR_COMMANDS]


@case
def observation_object(bench: Bench) -> Any:
    from llm_in_sandbox.observation import Observation

    lines = "\n".join(str(number) for number in range(10))
    action = Action("execute_bash", {})
    made = [
        Observation("out", 0, action),
        Observation(lines, 1, action, num_lines=2),
        Observation("", 0, action, stdout="o", stderr=None),
        Observation("x", 0, Action("bash", {}), stdout="", stderr="e"),
        Observation("x", 0, None),
        Observation("x", "Error: Exit code 1", Action("other", {})),
    ]
    return [masked("", str(observation)) for observation in made]


@case
def trajectory_objects(bench: Bench) -> Any:
    step = TrajectoryStep(thought="t", action={"function": "f", "parameters": {}}, observation="o", metadata={"step": 1})
    trajectory = Trajectory(problem_statement="p", steps=[step], metadata={"total_steps": 1})
    empty = Trajectory(problem_statement="")
    same = Trajectory(problem_statement="p", steps=[step], metadata={"total_steps": 1})
    trajectory.metadata["x"] = 1
    dumped = [trajectory.to_dict(), empty.to_dict(), TrajectoryStep().to_dict(), trajectory.model_dump()]
    return [dumped, trajectory.steps[0].thought, same != trajectory, same == same, json.loads(trajectory.model_dump_json())]


# Episodes, with a server that answers from a script.


def episode(bench: Bench, script: list[Any], **run: Any) -> Any:
    with chat_server.start(script) as server:
        args = AgentArgs(
            system_prompt="You work in /testbed.{command_docs}{demo} {{x}}",
            instance_prompt="<problem>{problem_statement}</problem>",
            llm_name="openai/scripted",
            llm_base_url=server.url,
            extra_body={"chat_template_kwargs": {"thinking": True}},
            quiet=True,
            max_retries=run.pop("max_retries", 5),
        )
        agent = Agent(args, None)
        trajectory = agent.run(bench.runtime, run.pop("statement", "Count {things}."), **run)
        made = trajectory.to_dict()
        for step in made["steps"]:
            assert isinstance(step["metadata"].pop("exec_time"), float)
            step["observation"] = masked(step["action"]["function"] or "", step["observation"])
        # Clients repeat requests that failed as often as they like.
        requests = [request_of(body) for body in server.requests]
        distinct = [body for number, body in enumerate(requests) if body not in requests[:number]]
        return [made, distinct, bool(agent.get_console_output())]


def request_of(body: dict[str, Any]) -> Any:
    """What a request says, without what clients may word differently."""
    messages = []
    for message in body["messages"]:
        kept = {name: message[name] for name in ("role", "content", "tool_call_id") if message.get(name)}
        if message["role"] != "assistant" and kept.get("content", "").count("\nSteps Remaining: "):
            before, remaining = kept["content"].rsplit("\nSteps Remaining: ", 1)
            kept["content"] = [masked("str_replace_editor" if "str_replace_editor" in before else "", before), remaining]
        calls = message.get("tool_calls") or []
        kept["calls"] = [[call["id"], call["function"]["name"], call["function"]["arguments"]] for call in calls[:1]]
        messages.append(kept)
    others = {name: body.get(name) for name in ("model", "temperature", "max_tokens", "chat_template_kwargs")}
    return [messages, [tool["function"]["name"] for tool in body["tools"]], others]


call, say = chat_server.call, chat_server.say
EPISODES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "solves": (
        [
            call("execute_bash", {"command": "echo 42 > answer.txt; cat answer.txt"}, text="I look."),
            call("str_replace_editor", {"command": "create", "path": "/testbed/s.py", "file_text": "print(1)"}),
            call("submit", {}),
        ],
        {"max_steps": 10, "temperature": 0.7, "max_tokens_per_call": 1000},
    ),
    "step_limit": ([call("execute_bash", {"command": "true"})] * 3, {"max_steps": 3}),
    "no_steps": ([], {"max_steps": 0}),
    "says_nothing_of_tools": ([say("Hm."), say(""), call("submit", {})], {"max_steps": 5}),
    "reasons": ([call("submit", {}, text="done", reasoning="think")], {"max_steps": 5}),
    "malformed_arguments": ([call("execute_bash", '{"command": '), call("submit", {})], {"max_steps": 5}),
    "arguments_that_are_a_list": ([call("execute_bash", "[1]"), call("submit", {})], {"max_steps": 5}),
    "unknown_tool": ([call("browse", {"url": "x"}), call("submit", {})], {"max_steps": 5}),
    "server_fails": ([500] * 20, {"max_steps": 5, "max_retries": 1}),
    "conversation_too_long": ([], {"max_steps": 5, "max_token_limit": 10, "statement": "word " * 1000}),
    "fails_later": ([call("execute_bash", {"command": "echo 1"}), *[500] * 20], {"max_steps": 5, "max_retries": 1}),
}
for _name, (_script, _run) in EPISODES.items():
    add(f"episode_{_name}", lambda bench, script=_script, run=_run: episode(bench, script, **dict(run)))


@case
def episode_shrinks_the_limit(bench: Bench) -> Any:
    error = (
        400,
        "This model's maximum context length is 20000 tokens. However, you requested 70000 tokens: 9000 tokens from the"
        " input messages and 65536 tokens for the completion.",
    )
    made = episode(bench, [error, call("submit", {})], max_steps=2)
    return made[1][-1][2]["max_tokens"]


# Benchmarks.

TASK = """
dataset: json
data_files: {data}
split: train
system_prompt: |-
  Work in {{working_dir}}.
instance_prompt: |-
  {{problem_statement}}
"""
REWARD = "def compute_score(agent_answer, ground_truth, **kwargs):\n    return float(agent_answer == ground_truth) / 2\n"


def task_folder(bench: Bench) -> str:
    folder = bench.host / "task"
    if not folder.exists():
        folder.mkdir()
        rows = [
            {"id": f"row_{number}", "problem_statement": f"Write {number}.", "ground_truth": truth, "input_files": {"n.txt": f"{number}\n"}}
            for number, truth in enumerate(["0", "one", "2"])
        ]
        (folder / "data.json").write_text(json.dumps(rows))
        (folder / "config.yaml").write_text(TASK.format(data=folder / "data.json"))
        (folder / "reward.py").write_text(REWARD)
    return str(folder)


@case
def task_config_of_a_folder(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_dataset_from_config, load_prompt_function, load_task_config

    config = load_task_config(task_folder(bench))
    config.pop("data_files")
    rows = list(load_dataset_from_config(load_task_config(task_folder(bench))))
    return [config, rows, load_prompt_function(task_folder(bench))(rows[0])]


@case
def missing_tasks(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_reward_function, load_task_config

    return [result_of(lambda _: load("no-such-task"), bench) for load in (load_task_config, load_reward_function)]


@case
def built_in_tasks(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_task_config

    facts = []
    for name in ("math", "physics", "chem", "biomed", "long_context", "instruct_follow", "instruct_pretrain"):
        config = load_task_config(name)
        keys = ("dataset", "config", "split", "working_dir", "output_dir")
        facts.append([*(config[key] for key in keys), "{problem_statement}" in config["instance_prompt"]])
        assert config["system_prompt"].format(working_dir="", input_dir="", output_dir="", command_docs="", demo="")
    return facts


ANSWERS = ["A", "b", " C ", "The answer is C.", "answer: d", '{"answer": "A"}', "\\boxed{B}", "", "I think A or C", "none"]


@case
def rewards_of_choices(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_reward_function

    tasks = ("chem", "biomed", "physics", "long_context")
    return [[load_reward_function(task)(answer, "C", id=1) for answer in ANSWERS] for task in tasks]


@case
def rewards_of_mathematics(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_reward_function

    score = load_reward_function("math")
    pairs = [("\\boxed{1/2}", "0.5"), ("0.50", "1/2"), ("x+1", "1+x"), ("7", "8"), ("", "1"), ("\\boxed{\\sqrt{4}}", "2")]
    return [score(answer, truth) for answer, truth in pairs]


@case
def rewards_of_training(bench: Bench) -> Any:
    from llm_in_sandbox.benchmark.runner import load_reward_function

    score = load_reward_function("instruct_pretrain")
    rows = [
        ("B", "B", "biomed_mini", None),
        ("0.5", "1/2", "math", None),
        ("A, C", "A, B, C", "instruct_pretrain", "Multiple Choice"),
        ("c", "C", "instruct_pretrain", "Multiple Choice"),
        ("the cat sat down", "the cat sat", "long_context", "free-form"),
        ("", "x", "math", None),
    ]
    return [round(score(answer, truth, domain=domain, qa_type=kind or "open_ended"), 6) for answer, truth, domain, kind in rows]


def benchmark(bench: Bench, workers: int, **arguments: Any) -> Any:
    from llm_in_sandbox.benchmark.runner import run_benchmark

    output = bench.host / f"results-{workers}-{len(arguments)}"
    config = {
        "docker_image": bench.image,
        "llm_name": "openai/scripted",
        "max_steps": 4,
        "temperature": 0.5,
        "max_token_limit": 65536,
        "max_tokens_per_call": 100,
        "max_response_len": 100,
        "extra_body": None,
        "save_litellm_response": False,
    }
    with chat_server.start(chat_server.by_conversation(number_writer)) as server:
        config["llm_base_url"] = server.url
        results = run_benchmark(task_folder(bench), config, str(output), num_workers=workers, **arguments)
    trajectories = json.loads((output / "trajectory.json").read_text())
    for row in trajectories.values():
        for step in row["trajectory"]:
            step["metadata"].pop("exec_time")
    assert json.loads((output / "results.json").read_text()) == results
    assert results.pop("elapsed_time_seconds") >= 0
    results["config"].pop("llm_base_url")
    for name in (results["config"], results):
        name.pop("docker_image", None), name.pop("task", None)
    logs = sorted(path.name for path in (output / "logs").iterdir())
    return [results, dict(sorted(trajectories.items())), logs]


def number_writer(messages: list[dict[str, Any]]) -> Any:
    """Writes the number in the statement to `answer.txt`, and submits; without tools it answers."""
    if len(messages) == 1:
        return say(re.findall(r"\d+", messages[0]["content"])[0])
    if len(messages) == 2:
        return call("execute_bash", {"command": "cat /testbed/documents/n.txt | tee /testbed/answer.txt"})
    return call("submit", {})


@case
def benchmark_one_worker(bench: Bench) -> Any:
    return benchmark(bench, 1)


@case
def benchmark_two_workers(bench: Bench) -> Any:
    return benchmark(bench, 2, start_id=1, end_id=3)


@case
def benchmark_without_sandbox(bench: Bench) -> Any:
    return benchmark(bench, 1, mode="llm")


def results(image: str, names: list[str]) -> dict[str, Any]:
    """The results of some cases, or of all, in JSON's types."""
    bench = Bench(image)
    try:
        made = {name: result_of(CASES[name], bench) for name in names or CASES}
    finally:
        bench.runtime.close()
    return json.loads(json.dumps(made))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # Packages print while they work.
    out, sys.stdout = sys.stdout, sys.stderr
    made = results(sys.argv[1], sys.argv[2:])
    json.dump(made, out, indent=1, ensure_ascii=False, sort_keys=True)
    out.write("\n")
