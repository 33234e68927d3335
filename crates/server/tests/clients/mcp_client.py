"""The unedited package `mcp` over streamable HTTP: every tool, concurrent clients, cancellation, the end of a session."""

import asyncio
import base64
import os

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["MCP_URL"]


def text(result):
    return result.content[0].text


async def every_tool(session):
    names = [tool.name for tool in (await session.list_tools()).tools]
    assert names == [
        "execute_bash", "str_replace_editor", "submit", "read_file", "write_file", "list_files",
    ], names
    result = await session.call_tool("execute_bash", {"command": "cd /tmp; n=6; echo $((n * 7))"})
    assert not result.is_error and text(result) == "[exit code 0]\n[stdout]\n42", result
    assert text(await session.call_tool("execute_bash", {"command": "echo $PWD $n"})).endswith("/tmp 6")
    created = {"command": "create", "path": "/tmp/a.txt", "file_text": "one\ntwo\n"}
    assert not (await session.call_tool("str_replace_editor", created)).is_error
    viewed = await session.call_tool("str_replace_editor", {"command": "view", "path": "/tmp/a.txt"})
    assert "two" in text(viewed), viewed
    data = bytes(range(256)) * 1000
    encoded = base64.b64encode(data).decode()
    written = await session.call_tool(
        "write_file", {"path": "/tmp/data.bin", "content": encoded, "encoding": "base64"}
    )
    assert not written.is_error, written
    read = await session.call_tool("read_file", {"path": "/tmp/data.bin"})
    assert base64.b64decode(read.content[0].resource.blob) == data
    assert text(await session.call_tool("read_file", {"path": "/tmp/a.txt"})) == "one\ntwo\n"
    listed = await session.call_tool("list_files", {"path": "/tmp"})
    sizes = {entry["path"]: entry["size"] for entry in listed.structured_content["entries"]}
    assert sizes["/tmp/data.bin"] == 256000, sizes
    assert (await session.call_tool("read_file", {"path": "/tmp/none"})).is_error
    assert text(await session.call_tool("submit", {})).startswith("Submitted")


async def alone(number):
    async with streamable_http_client(URL) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        command = f"test ! -e /tmp/mine; echo $?; echo {number} > /tmp/mine; sleep 0.2; cat /tmp/mine"
        result = await session.call_tool("execute_bash", {"command": command})
        assert text(result) == f"[exit code 0]\n[stdout]\n0\n{number}", result


async def long_call():
    seen = []

    async def on_progress(progress, total, message):
        seen.append(progress)

    async with streamable_http_client(URL) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        arguments = {"command": "sleep 3.4; echo end"}
        result = await session.call_tool("execute_bash", arguments, progress_callback=on_progress)
        assert text(result).endswith("end") and seen, (result, seen)


async def main():
    async with streamable_http_client(URL) as streams, ClientSession(streams[0], streams[1]) as session:
        info = await session.initialize()
        assert info.server_info.name == "llm-in-sandbox", info
        await asyncio.gather(every_tool(session), long_call(), *(alone(number) for number in range(3)))
    print("done")


asyncio.run(main())
