"""asyncio: many at once, cancelled, in several loops."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import time

import pytest
from conftest import spawners

import llm_in_sandbox as lis
from llm_in_sandbox import AsyncSandbox, AsyncSandboxPool, SandboxPool


def test_all_methods(tmp_path: object) -> None:
    async def main() -> None:
        async with await AsyncSandbox.create(memory="256M") as sandbox:
            assert (await sandbox.run("echo $X", env={"X": "1"})).stdout == "1\n"
            await sandbox.shell("x=5")
            assert (await sandbox.shell("echo $x")).stdout == "5\n"
            await sandbox.write("a", "b", mode=0o600)
            assert await sandbox.read("a") == b"b" and await sandbox.read_text("a") == "b"
            await sandbox.mkdir("d")
            assert [entry.name for entry in await sandbox.list()] == ["a", "d"]
            await sandbox.download("a", f"{tmp_path}/a")
            await sandbox.upload(f"{tmp_path}/a", "c")
            async with await sandbox.fork() as other:
                assert await other.read("c") == b"b"
            with pytest.raises(lis.PathNotFound):
                await sandbox.read("missing")
            with pytest.raises(lis.CommandError):
                await sandbox.run("false", check=True)
            assert (await sandbox.expose(80)).startswith("http://127.0.0.1:")
            assert sandbox.protection["runtime"] == "native" and not sandbox.closed
        assert sandbox.closed
        with pytest.raises(lis.SandboxClosed):
            await sandbox.run("true")
        await sandbox.close()

    asyncio.run(main())


def test_many_at_once() -> None:
    async def one(number: int) -> str:
        async with await AsyncSandbox.create() as sandbox:
            return (await sandbox.run(f"echo {number}")).stdout.strip()

    async def main() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(32)))

    assert asyncio.run(main()) == [str(number) for number in range(32)]


def test_cancelling_ends_the_command() -> None:
    async def main() -> None:
        async with await AsyncSandbox.create() as sandbox:
            start = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.run("echo $$ > pid; sleep 60"), 0.3)
            assert time.monotonic() - start < 30
            for _ in range(100):
                left = (await sandbox.run("pgrep -x sleep || true")).stdout
                if not left:
                    break
                await asyncio.sleep(0.02)
            assert left == ""

    asyncio.run(main())


def test_cancelling_a_creation_leaves_nothing() -> None:
    async def main() -> None:
        for _ in range(5):
            task = asyncio.create_task(AsyncSandbox.create())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with await AsyncSandbox.create() as sandbox:
            assert (await sandbox.run("true")).ok

    asyncio.run(main())


def test_several_loops() -> None:
    async def main() -> str:
        async with await AsyncSandbox.create() as sandbox:
            return (await sandbox.run("echo 1")).stdout

    assert [asyncio.run(main()) for _ in range(3)] == ["1\n"] * 3


def test_a_pool_for_asyncio() -> None:
    async def main(pool: SandboxPool) -> None:
        async with await pool.take_async() as sandbox:
            assert (await sandbox.run("echo 1")).stdout == "1\n"

    with SandboxPool(1) as pool:
        asyncio.run(main(pool))


def test_a_pool_whose_methods_are_coroutines() -> None:
    async def main() -> None:
        async with await AsyncSandboxPool.create(2, memory="256M") as pool:
            assert pool.size == 2 and not pool.closed
            async with await pool.take() as sandbox:
                assert (await sandbox.run("echo 1")).stdout == "1\n"
            kept = await pool.take()
            with pytest.raises(TypeError, match="belongs to this process"):
                pickle.dumps(pool)
        # It closes what was not taken.
        assert pool.closed and (await kept.run("true")).ok
        await kept.close()
        with pytest.raises(lis.SandboxClosed):
            await pool.take()
        await pool.close()
        for wrong, error in ((0, lis.UsageError), ("2", TypeError), (True, TypeError)):
            with pytest.raises(error, match="size"):
                await AsyncSandboxPool.create(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="colour"):
            await AsyncSandboxPool.create(1, colour="red")  # type: ignore[call-arg]

    asyncio.run(main())


def test_a_cancelled_take_leaves_the_pool_usable() -> None:
    async def main() -> None:
        async with await AsyncSandboxPool.create(1) as pool:
            kept = [await pool.take()]
            stopped = spawners()
            for spawner in stopped:
                os.kill(spawner, signal.SIGSTOP)
            try:
                # Some may be ready; the next one is not.
                with pytest.raises(asyncio.TimeoutError):
                    while True:
                        kept.append(await asyncio.wait_for(pool.take(), 1))
            finally:
                for spawner in stopped:
                    os.kill(spawner, signal.SIGCONT)
            kept.append(await asyncio.wait_for(pool.take(), 60))
            for sandbox in kept:
                assert (await sandbox.run("true")).ok
                await sandbox.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [AsyncSandbox, AsyncSandboxPool])
def test_the_constructor_points_to_create(kind: type[AsyncSandbox | AsyncSandboxPool]) -> None:
    with pytest.raises(TypeError, match=f"await {kind.__name__}.create"):
        kind()
