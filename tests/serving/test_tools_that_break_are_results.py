"""A tool server that hangs, is deaf or answers in pieces: the session gets a result in time, and the next call goes through."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
import pytest
import uvicorn
from aiohttp import web
from mcp.server.lowlevel import Server

from hat_harness.events import ToolRequest, ToolResult
from hat_serving.gateway.toolbox import MAX_RESULT, Bindings, Toolbox


@contextmanager
def mcp_server() -> Iterator[str]:
    """A real MCP server over HTTP whose tool never answers for the item `slow`."""

    async def call(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.arguments == {"item": "slow"}:
            await asyncio.Event().wait()
        return types.CallToolResult(content=[types.TextContent(type="text", text="42")])

    async def listed(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="get_item", input_schema={"type": "object"})])

    app = Server("tools", on_list_tools=listed, on_call_tool=call).streamable_http_app()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = server.force_exit = True
        thread.join(20)


@pytest.mark.asyncio
async def test_a_tool_over_mcp_that_hangs_is_given_up_and_reached_again() -> None:
    slow = ToolRequest("c", "get_item", {"item": "slow"}, timeout_s=0.5)
    with mcp_server() as url:
        bindings = Bindings.parse({"servers": {"s": {"mcp": url, "timeout_s": 60}}, "tools": {"*": "s"}})
        async with Toolbox(bindings) as toolbox:
            assert (await toolbox.call("s", slow)).failure == "timeout"
            again = ToolRequest("d", "get_item", {"item": "mug"}, timeout_s=60)
            assert await toolbox.call("s", again) == ToolResult("d", "42")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()  # connections come in, nothing comes out
        bindings = Bindings.parse(
            {"servers": {"s": {"mcp": f"http://127.0.0.1:{deaf.getsockname()[1]}/mcp"}}, "tools": {"*": "s"}}
        )
        async with Toolbox(bindings) as toolbox:
            assert (await toolbox.call("s", slow)).failure == "timeout"
            async with asyncio.timeout(60):
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_a_result_that_comes_in_pieces_is_whole_and_a_long_one_is_cut() -> None:
    async def answers(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        if request.match_info["tool"] == "long":
            for _ in range(20):
                await answer.write(b"x" * 10_000)
            return answer
        for piece in (b"it costs ", b"42 ", b"yuan"):
            await answer.write(piece)
            await asyncio.sleep(0.05)
        return answer

    app = web.Application()
    app.router.add_post("/{tool}", answers)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/{{tool}}"
    async with Toolbox(Bindings.parse({"servers": {"s": {"http": url}}, "tools": {"*": "s"}})) as toolbox:
        assert await toolbox.call("s", ToolRequest("c", "get_item", {})) == ToolResult("c", "it costs 42 yuan")
        assert (await toolbox.call("s", ToolRequest("d", "long", {}))).content == "x" * MAX_RESULT + " … (cut)"
    await runner.cleanup()
