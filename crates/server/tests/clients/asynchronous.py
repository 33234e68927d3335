"""The asynchronous client: many sandboxes at once, streams that are followed and left."""
import asyncio
import os
import uuid

from e2b import AsyncSandbox, FilesystemEventType, SandboxException


async def use(number):
    box = await AsyncSandbox.create(timeout=60)
    try:
        await box.files.write("n.txt", str(number))
        result = await box.commands.run("cat n.txt; echo; id -u")
        assert result.stdout.startswith(f"{number}\n"), result
        return result.exit_code
    finally:
        assert await box.kill()


async def follow():
    box = await AsyncSandbox.create(timeout=60)
    seen = []
    command = await box.commands.run(
        "for i in $(seq 20); do echo $i; sleep 0.01; done", background=True, on_stdout=seen.append)
    assert (await command.wait()).exit_code == 0
    assert "".join(seen) == "".join(f"{i}\n" for i in range(1, 21))
    events = asyncio.Queue()
    watch = await box.files.watch_dir(".", on_event=events.put_nowait)
    await box.files.write("x", "1")
    while (event := await asyncio.wait_for(events.get(), 20)).type != FilesystemEventType.WRITE:
        pass
    assert event.name == "x"
    await watch.stop()
    await box.kill()


async def repeat():
    key = str(uuid.uuid4())
    create = lambda timeout: AsyncSandbox.create(timeout=timeout, idempotency_key=key)
    first, again = await asyncio.gather(create(60), create(60))
    assert first.sandbox_id == again.sandbox_id
    try:
        await create(61)
    except SandboxException as error:
        assert error.status_code == 422, error
    else:
        raise AssertionError("another request with the same key was accepted")
    assert await first.kill() and not await again.kill()


async def main():
    every = (*(use(n) for n in range(8)), follow(), repeat())
    assert await asyncio.gather(*every) == [0] * 8 + [None] * 2
    print("done", flush=True)
    # At once: threads of the package can crash the interpreter while it ends, after all has been checked.
    os._exit(0)


asyncio.run(main())
