"""The room's tools over MCP: a real client over stdio (a process of its own) and over streamable HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_scenarios.live_commerce.backend import carry_out
from hat_scenarios.live_commerce.server import make_server, room_backend

from .conftest import HARNESSES


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


async def tour(client: Client, harness: Harness, seed: int) -> None:
    """Lists the tools, calls each kind, and sees the room change."""
    room = room_backend(seed).room
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(listed) == {tool.name for tool in harness.tools}
    for tool in harness.tools:
        assert listed[tool.name].input_schema == tool.parameters
        assert listed[tool.name].annotations.read_only_hint is tool.read_only
        assert listed[tool.name].annotations.idempotent_hint is tool.idempotent
    last = room.names[-1]
    for name, arguments in (
        ("get_item", {"item": last}),
        ("calculate_optimal_promotion", {"item": last, "count": "3"}),
        ("get_promotion", {"item": "room"}),
        ("change_presentation_order", {"item": last, "position": "first"}),
    ):
        result = await client.call_tool(name, arguments)
        assert not result.is_error
        assert text(result) == carry_out(room, name, arguments)[1]
    for name, arguments, reason in (
        ("get_item", {"item": "ghost mug"}, "no product called ghost mug"),
        ("get_item", {"article": last}, 'missing parameter "item"'),
        ("calculate_promotion", {"item": last, "count": 2}, 'parameter "count" must be a string'),
        ("fly", {}, "no tool called fly"),
    ):
        result = await client.call_tool(name, arguments)
        assert result.is_error
        assert reason in text(result)


def test_over_stdio(live: Harness) -> None:
    folder = str(HARNESSES / "live-commerce")
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "hat_scenarios.live_commerce.server", folder, "--stdio", "--seed", "3"]
    )

    async def run() -> None:
        async with Client(command) as client:
            await tour(client, live, 3)

    asyncio.run(asyncio.wait_for(run(), 60))


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of `app`, served by uvicorn on a free loopback port."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # before the server runs: who connects early waits instead of being refused
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join(20)


def test_over_streamable_http_with_a_shared_room(live: Harness) -> None:
    backend = room_backend(4)
    name = backend.room.names[-1]

    async def run(address: str) -> None:
        async with Client(address) as client:
            await tour(client, live, 4)
        async with Client(address) as client:
            await client.call_tool("start_explanation", {"item": name})

    with served(make_server(live.tools, backend).streamable_http_app()) as address:
        asyncio.run(asyncio.wait_for(run(address), 60))
    assert backend.room.names[0] == name
    assert backend.room.presented == name


def test_a_foreign_host_is_turned_away(live: Harness) -> None:
    """A page of another origin cannot reach a server on loopback by rebinding its name."""
    import httpx

    with served(make_server(live.tools, room_backend(5)).streamable_http_app()) as address:
        headers = {"host": "evil.example", "accept": "application/json, text/event-stream"}
        reply = httpx.post(address, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers, timeout=20)
    assert reply.status_code == 421


def test_renamed_tools_reach_the_same_room() -> None:
    """An augmented harness is served under its own names; calls still mean what they meant."""
    from hat_harness.augment import AugmentPlan, apply
    from hat_harness.augment.operators import ParameterName, ParameterType, ToolName
    from hat_harness.canonical import surface_call
    from hat_scenarios.live_commerce.vocabulary import vocabulary

    base = load_harness(HARNESSES / "live-commerce")
    plan = AugmentPlan(operators=(ToolName(), ParameterName(), ParameterType(share=1.0)), p=1.0, original=0.0)
    renamed = apply(base, plan, 5, vocabulary()).harness
    backend = room_backend(6)
    item = backend.room.names[0]
    name, arguments = surface_call(renamed, "calculate_promotion", {"item": item, "count": "2"})

    async def run() -> Any:
        async with Client(make_server(renamed.tools, backend)) as client:
            return await client.call_tool(name, arguments)

    assert name != "calculate_promotion"
    expected = carry_out(backend.room, "calculate_promotion", {"item": item, "count": "2"})[1]
    assert text(asyncio.run(run())) == expected


def test_the_command_line_names_a_broken_folder(tmp_path: Any) -> None:
    from hat_harness.errors import LoadError
    from hat_scenarios.live_commerce.server import main

    with pytest.raises(LoadError, match=r"harness\.yaml"):
        main([str(tmp_path), "--stdio"])
