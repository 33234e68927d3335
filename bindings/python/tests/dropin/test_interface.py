"""The interface itself: names, signatures, the engine's and the reference's use of the same classes."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import signal
import subprocess
import sys
import threading
import time
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cases
import chat_server
import llm_in_sandbox
import pytest
from llm_in_sandbox import Action, Agent, AgentArgs, DockerRuntime, Sandbox, Trajectory, TrajectoryStep, _agent, _trajectory
from llm_in_sandbox._reference import anthropic, budget, images, options

REPOSITORY = Path(__file__).parents[4]


def test_names_of_the_reference() -> None:
    from llm_in_sandbox import action, agent, benchmark, cli, docker_runtime, observation, tools, trajectory
    from llm_in_sandbox.benchmark import runner
    from llm_in_sandbox.benchmark.math.reward import compute_score

    assert llm_in_sandbox.CMD_TIMEOUT == 120
    assert agent.Agent is llm_in_sandbox.Agent
    assert action.Action is llm_in_sandbox.Action
    assert trajectory.TrajectoryStep is llm_in_sandbox.TrajectoryStep
    assert docker_runtime.DockerRuntime is llm_in_sandbox.DockerRuntime
    assert llm_in_sandbox.get_logger is agent.get_logger
    assert callable(benchmark) and benchmark.run_benchmark is runner.run_benchmark
    assert compute_score("\\boxed{1/2}", "0.5") == 1.0
    assert cli.main and observation.CONTINUE_MSG and tools.submit_tool


@pytest.mark.skipif(sys.version_info < (3, 11), reason="overloads are not kept before Python 3.11")
def test_agent_has_the_signature_of_the_engine() -> None:
    def described(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        """All but the values of defaults, which the engine has alone."""
        parameters = inspect.signature(function).parameters.values()
        return [(one.name, one.kind, one.annotation, one.default is one.empty) for one in parameters]

    ours, reference = typing.get_overloads(Agent.__init__)
    assert described(ours) == described(_agent.Agent.__init__)
    defaults = [one.default for one in inspect.signature(ours).parameters.values()]
    assert all(default in (..., inspect.Parameter.empty) for default in defaults)
    assert list(inspect.signature(reference).parameters) == ["self", "args", "logger"]
    ours, _ = typing.get_overloads(Agent.run)
    assert [str(value) for value in inspect.signature(ours).parameters.values()] == [
        str(value) for value in inspect.signature(_agent.Agent.run).parameters.values()
    ]


def test_agent_serves_both_uses() -> None:
    def model(messages: list[Any], tools: list[Any]) -> Any:
        call = {"name": "submit", "arguments": {}}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": call}]}

    ended = Agent(model).run("Submit.")
    assert isinstance(ended, Trajectory) and ended.outcome == "submitted"
    assert ended.steps[-1].action["function"] == "submit" == ended.steps[-1]["action"]["function"]
    assert pickle.loads(pickle.dumps(ended)).steps == ended.steps

    args = AgentArgs("", "", "openai/x", "http://localhost:1/v1", quiet=True)
    agent = Agent(args=args, logger=logging.getLogger("test"))
    assert (agent.llm_name, agent.max_retries, agent.history) == ("openai/x", 5, [])


def test_subclass_with_its_own_model(bench: Any) -> None:
    class Mine(Agent):
        def model_query(self, messages: Any, **settings: Any) -> Any:
            from llm_in_sandbox._reference.responses import Record

            return Record({"choices": [{"message": chat_server.call("submit", {})}]}), 0.5

    trajectory = Mine(AgentArgs("s", "{problem_statement}", "openai/x", quiet=True)).run(bench.runtime, "p")
    assert [step.metadata for step in trajectory.steps] == [{"step": 1, "exec_time": 0.5}]


def test_trajectory_serves_both_uses() -> None:
    made = Trajectory(problem_statement="p", steps=[{"thought": "t"}], metadata={"total_steps": 1})
    assert isinstance(made, _trajectory.Trajectory)
    assert isinstance(made.steps[0], TrajectoryStep)
    assert made.to_dict()["steps"][0]["thought"] == "t"
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(TypeError, match="problem_statement"):
        Trajectory()  # type: ignore[call-overload]


def test_action_from_text() -> None:
    text = "I look.\n<function=execute_bash>\n<parameter=command>ls -l\n</parameter>\n</function>"
    assert Action.from_string(text).to_dict() == {"function": "execute_bash", "parameters": {"command": "ls -l"}}
    assert Action.from_string("no call").function_name == ""


def test_unknown_image_is_the_host_with_one_warning() -> None:
    images._missing.clear()
    with pytest.warns(UserWarning, match="no image `nobody/nothing:v0`") as caught:
        for _ in range(2):
            with DockerRuntime("nobody/nothing:v0", logger=False) as runtime:
                assert runtime.run("echo x") == ("x\n", "0")
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_stored_image_is_used(tmp_path: Path) -> None:
    with Sandbox() as sandbox:
        sandbox.write("/marker", "here")
        sandbox.snapshot("dropin-test")
    program = llm_in_sandbox.find_program()
    try:
        with DockerRuntime("dropin-test", logger=False) as runtime:
            assert runtime.run("cat /marker") == ("here", "0")
    finally:
        subprocess.run([program, "image", "rm", "dropin-test"], check=True, capture_output=True)


def test_arguments_of_docker() -> None:
    made = options.sandbox_arguments(
        {"mem_limit": "1.5g", "nano_cpus": 500_000_000, "pids_limit": 64, "environment": {}, "labels": {}}, "native"
    )
    assert made == {"memory": 3 << 29, "cpus": 0.5, "processes": 64, "disk": "unlimited", "network": "internet"}
    networks = {
        "none": {"network_mode": "none"},
        "full": {"network_mode": "host"},
        "internet": {"network": "bridge"},
        "allow=example.com": {"network": "allow=example.com"},
    }
    for expected, given in networks.items():
        assert options.sandbox_arguments(given, "native")["network"] == expected
    assert options.sandbox_arguments({"network_disabled": True}, "native")["network"] == "none"
    assert options.sandbox_arguments({}, "docker")["network"] == "full"
    with pytest.raises(ValueError, match="`volumes` is not supported: copy files"):
        options.sandbox_arguments({"volumes": {"/a": "/b"}}, "native")
    with pytest.raises(ValueError, match="not a size"):
        options.sandbox_arguments({"mem_limit": "much"}, "native")
    with pytest.warns(UserWarning, match="ignores `cpu_shares`, `shm_size`"):
        options.sandbox_arguments({"shm_size": "1g", "cpu_shares": 2}, "native")


def test_command_that_works_is_started(bench: Any) -> None:
    with DockerRuntime("host", command="sh -c 'echo $$ > /testbed/started; sleep 60'", logger=False) as runtime:
        assert runtime.run("for i in $(seq 50); do test -s started && break; sleep 0.1; done; wc -l < started") == (
            "1\n",
            "0",
        )


def test_command_that_ignores_signals_is_killed(bench: Any) -> None:
    ended = bench.runtime.run("trap '' TERM; while :; do sleep 0.2; done", timeout=1)
    assert ended == ("The command took too long to execute (>1s)", "-1")


def test_runtimes_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def use(number: int) -> Any:
        with DockerRuntime("host", logger=False) as runtime:
            runtime.run(f"echo {number} > n")
            return runtime.run("cat n")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(16))) == [(f"{number}\n", "0") for number in range(16)]


def test_archives_of_the_container(bench: Any) -> None:
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("sub/file")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
    bench.runtime.run("mkdir -p archives")
    assert bench.runtime.container.put_archive("/testbed/archives", packed.getvalue())
    pieces, stat = bench.runtime.container.get_archive("/testbed/archives/sub")
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        assert sorted(archive.getnames()) == ["sub", "sub/file"]
    assert stat["name"] == "sub"


def test_limit_after_an_overflow() -> None:
    known = "maximum context length is 20000 tokens, but 9000 tokens in the messages"
    assert budget.too_many_tokens(known) and budget.smaller_limit(known, 65536) == 10900
    assert budget.smaller_limit(known.replace("9000", "19000"), 65536) is None
    assert budget.smaller_limit("token limit exceeded", 65536) == 32768
    assert budget.smaller_limit("token limit exceeded", 8192) is None
    assert not budget.too_many_tokens("bad gateway")


def test_messages_of_anthropic() -> None:
    conversation = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        chat_server.call("execute_bash", {"command": "ls"}, text="t"),
        {"role": "tool", "tool_call_id": "call_execute_bash", "content": "a.txt"},
        {"role": "user", "content": "more"},
    ]
    tools = [llm_in_sandbox.tools.submit_tool]  # type: ignore[attr-defined]
    body = {"model": "m", "max_tokens": 5, "temperature": 1.5, "messages": conversation, "tools": tools}
    made = anthropic.request(body)
    assert (made["system"], made["temperature"], made["tools"][0]["name"]) == ("s", 1.0, "submit")
    assert [message["role"] for message in made["messages"]] == ["user", "assistant", "user"]
    assert made["messages"][1]["content"][1]["input"] == {"command": "ls"}
    assert [part["type"] for part in made["messages"][2]["content"]] == ["tool_result", "text"]
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "1", "name": "submit", "input": {}},
    ]
    answer = anthropic.to_openai({"content": content, "stop_reason": "tool_use", "usage": {"output_tokens": 2}})
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("ok", "hm")
    assert message["tool_calls"][0]["function"] == {"name": "submit", "arguments": "{}"}


def test_prompts_are_those_of_the_engine() -> None:
    """Except that commands have a shell of their own, and that no network is described."""
    from llm_in_sandbox._reference import yaml

    package = Path(llm_in_sandbox.__file__).parent
    own_shell = "execute_bash runs a command. Each call is a new shell that starts in {working_dir}."
    replaced = {
        "execute_bash runs a command in one lasting shell that starts in {working_dir}.": own_shell,
        "execute_bash runs a command. It is one shell: directory, variables and functions last from call to call.": own_shell,
        "{network} ": "",
        " {input_files}": "",
    }
    names = ["math", "physics", "chem", "biomed", "long_context", "instruct_follow"]
    files = {name: package / "benchmark" / name / "config.yaml" for name in names}
    for name, path in {**files, "general": package / "config/general.yaml"}.items():
        engine = yaml.load(REPOSITORY / f"crates/agent/prompts/{name}.yaml")
        for prompt in ("system_prompt", "instance_prompt"):
            text = engine[prompt]
            for old, new in replaced.items():
                text = text.replace(old, new)
            assert yaml.load(path)[prompt] == text, name


def test_command_line_accepts_the_reference(tmp_path: Path) -> None:
    script = [chat_server.call("execute_bash", {"command": "echo 42 > /testbed/output/answer.txt"}), chat_server.call("submit", {})]
    with chat_server.start(script) as server:
        flags = {"query": "What?", "llm_name": "scripted", "llm_base_url": server.url, "output_dir": str(tmp_path), "max_steps": "5"}
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        code = "from llm_in_sandbox.cli import main; main()"
        ended = subprocess.run([sys.executable, "-c", code, "run", *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "42"


def test_run_agent_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_in_sandbox.cli import run_agent_query

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LLM_IN_SANDBOX_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_text("7\n")
    (tmp_path / "llm-in-sandbox.yaml").write_text("llm_name: scripted\napi_key: k\n")
    script = [chat_server.call("execute_bash", {"command": "cp input/x output/answer.txt"}), chat_server.call("submit", {})]
    with chat_server.start(script) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_agent_query("Copy.", llm_base_url=server.url, input_dir="in", output_dir="out", extra_body='{"a": "true"}')
        assert server.requests[0]["a"] is True
    (results,) = (tmp_path / "out").iterdir()
    assert (results / "files" / "answer.txt").read_text() == "7\n"
    assert json.loads((results / "trajectory.json").read_text())["metadata"] == {"total_steps": 2}


def test_a_benchmark_needs_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_workers must be at least 1, not 0"):
        llm_in_sandbox.benchmark.run_benchmark("math", {}, str(tmp_path), num_workers=0)  # type: ignore[attr-defined]


def test_an_interrupt_ends_a_benchmark_of_several_workers(bench: Any, tmp_path: Path) -> None:
    asked, released = threading.Semaphore(0), threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        asked.release()
        released.wait(60)
        return chat_server.call("execute_bash", {"command": "true"})

    code = """
import json, sys, time
from llm_in_sandbox.benchmark.runner import run_benchmark
try:
    run_benchmark(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], num_workers=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    # The episodes get their responses, and would go on.
    time.sleep(3)
"""
    config = {"docker_image": "host", "llm_name": "openai/scripted", "max_steps": 4, "temperature": 0.5}
    config |= {"max_token_limit": 65536, "max_tokens_per_call": 100}
    with chat_server.start(script) as server:
        words = [cases.task_folder(bench), json.dumps({**config, "llm_base_url": server.url}), str(tmp_path)]
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(2):
                assert asked.acquire(timeout=60)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            start = time.monotonic()
            assert any(line == "interrupted\n" for line in process.stdout)
            assert time.monotonic() - start < 20
            released.set()
            assert process.wait(30) == 0
        finally:
            released.set()
            process.kill()
            process.wait()
        assert len(server.requests) == 2 and not (tmp_path / "results.json").exists()


def test_nothing_is_imported_that_is_not_needed() -> None:
    """The package has no dependencies, and its import leaves other loggers alone."""
    code = (
        "import logging, sys; logging.basicConfig(); before = logging.getLogger().handlers[:];"
        "import llm_in_sandbox, llm_in_sandbox.agent, llm_in_sandbox.docker_runtime, llm_in_sandbox.benchmark.runner;"
        "assert logging.getLogger().handlers == before;"
        "assert not {'docker', 'litellm', 'datasets', 'rich', 'pydantic', 'yaml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
