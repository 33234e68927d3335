"""The taskset, runtime, harness and environment of verifiers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from helpers import kill_sandboxes, need

need("verifiers")

import verifiers_tasks  # noqa: E402
from verifiers.v1.errors import SandboxError  # noqa: E402

from llm_in_sandbox.verifiers import SandboxEnv, SandboxRuntime  # noqa: E402


def test_the_example_is_graded() -> None:
    episodes = verifiers_tasks.main()
    assert [episode.ok for episode in episodes] == [True, True]
    assert [episode.traces[0].reward for episode in episodes] == [1.0, 0.0]
    assert [episode.traces[0].num_turns for episode in episodes] == [2, 2]


class Unavailable(SandboxEnv):
    """Its sandboxes cannot be created."""

    @asynccontextmanager
    async def provision(self):
        raise SandboxError("no user namespaces")
        yield


def test_a_dead_sandbox_is_a_sandbox_error_and_no_reward() -> None:
    created = []
    dead = asyncio.Event()

    class Killed(SandboxEnv):
        """Its two sandboxes die when both are there, before they are used."""

        @asynccontextmanager
        async def provision(self):
            async with super().provision() as runtime:
                created.append(runtime)
                if len(created) == 2:
                    kill_sandboxes()
                    dead.set()
                await dead.wait()
                yield runtime

    for episode in verifiers_tasks.main(Killed):
        trace = episode.traces[0]
        assert not episode.ok and not trace.ok
        assert trace.last_error.type == "SandboxError", trace.last_error
        assert not trace.rewards


def test_an_episode_without_a_sandbox_failed() -> None:
    for episode in verifiers_tasks.main(Unavailable):
        assert not episode.ok and not episode.traces
        assert episode.errors[0].type == "SandboxError"


def test_the_runtime_runs_reads_and_writes() -> None:
    async def main() -> None:
        runtime = SandboxRuntime()
        await runtime.start()
        try:
            data = bytes(range(256))
            await runtime.write("a/b", data)
            assert await runtime.read("a/b") == data and await runtime.read("a/b", max_bytes=256) == data
            with pytest.raises(SandboxError, match="over the 255 byte limit"):
                await runtime.read("a/b", max_bytes=255)
            with pytest.raises(SandboxError):
                await runtime.read("missing", max_bytes=1)
            with pytest.raises(FileNotFoundError):
                await runtime.read("missing")
            done = await runtime.with_env({"X": "1"}).run(["sh", "-c", "echo $X$Y; exit 3"], {"Y": "2"})
            assert (done.exit_code, done.stdout) == (3, "12\n")
            await runtime.run_background(["sh", "-c", "sleep 0.2; echo late"], {}, "log")
            assert await runtime.read("log") == b""
            await asyncio.sleep(1)
            assert await runtime.read("log") == b"late\n"
            assert await runtime.answer() == "" and await runtime.alive()
            kill_sandboxes()
            assert not await runtime.alive()
            for operation in (runtime.run(["true"], {}), runtime.read("a/b"), runtime.write("x", b""), runtime.answer()):
                with pytest.raises(SandboxError):
                    await operation
        finally:
            await runtime.stop()

    asyncio.run(main())
