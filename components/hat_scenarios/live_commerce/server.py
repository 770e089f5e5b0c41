"""The room's tools as an MCP server, over stdio or streamable HTTP.

Tool definitions are read from a harness, so that the server offers exactly what the model is told; results are the
backend's texts, an error text is a tool error. One process serves one room, whose state all its clients share, as
viewers of a room do. Always holds: loopback unless told otherwise; the package `mcp` is imported only when a server
is made. Not here: what the tools do (backend).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hat_harness.arguments import check_arguments
from hat_harness.canonical import canonical_arguments
from hat_harness.events import ToolRequest
from hat_harness.spec import Harness, Tool
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.live_commerce.backend import ERROR, RoomBackend

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

NAME = "live-commerce-room"


def make_server(tools: Sequence[Tool], backend: RoomBackend) -> Server[Any]:
    """An MCP server over `backend` that offers `tools` under their names."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    known = {tool.name: tool for tool in tools}

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_definition(tool) for tool in tools])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = _answer(known.get(params.name), params.name, params.arguments or {}, backend)
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=list(content), is_error=text.startswith(ERROR))

    return Server(NAME, on_list_tools=list_tools, on_call_tool=call_tool)


def _definition(tool: Tool) -> Any:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only,
            idempotent_hint=tool.idempotent,
            destructive_hint=False,
            open_world_hint=False,
        ),
    )


def _answer(tool: Tool | None, name: str, arguments: Mapping[str, Any], backend: RoomBackend) -> str:
    if tool is None:
        return f"{ERROR} no tool called {name}"
    fault = check_arguments(tool, arguments)
    if fault:
        return f"{ERROR} {fault}"
    request = ToolRequest("mcp", tool.id, canonical_arguments(tool, arguments))
    return backend.call("mcp", request).content


def room_backend(seed: int = 1, difficulty: int = 1) -> RoomBackend:
    """The backend of a drawn room, the same for the same seed."""
    scenario = LiveCommerce(Settings.model_validate({"difficulty": difficulty}))
    return scenario.backend(scenario.item(seed, "dev", 0))


def serve(
    harness: Harness,
    host: str = "127.0.0.1",
    port: int = 8740,
    *,
    backend: RoomBackend | None = None,
    transport: str = "http",
) -> None:
    """Serve the tools of `harness` until the process ends; `transport` is `http` (at `/mcp`) or `stdio`."""
    import anyio

    server = make_server(harness.tools, backend or room_backend())
    if transport == "stdio":
        anyio.run(_over_stdio, server)
        return
    import uvicorn

    app = server.streamable_http_app(host=host)
    uvicorn.run(app, host=host, port=port, log_level="warning")


async def _over_stdio(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m hat_scenarios.live_commerce.server HARNESS [--stdio] [--host H] [--port P] [--seed N]`."""
    import argparse
    from pathlib import Path

    from hat_harness.load import load_harness

    parser = argparse.ArgumentParser(prog="hat_scenarios.live_commerce.server", description="tools of a live room")
    parser.add_argument("harness", type=Path, help="folder of the harness whose tools are offered")
    parser.add_argument("--stdio", action="store_true", help="speak over standard input and output instead of HTTP")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8740)
    parser.add_argument("--seed", type=int, default=1, help="which room")
    given = parser.parse_args(arguments)
    serve(
        load_harness(given.harness),
        given.host,
        given.port,
        backend=room_backend(given.seed),
        transport="stdio" if given.stdio else "http",
    )


if __name__ == "__main__":
    main()
