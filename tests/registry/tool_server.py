"""A small real MCP server for tests, over stdio: its tools come from a JSON file, or it misbehaves as it is told.

`python -m tests.registry.tool_server FILE` serves; with `hang`, `garbage`, `exit` instead of a file it never answers,
prints what is no MCP, or ends at once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def make(definitions: Sequence[dict[str, Any]], page: int = 50) -> Any:
    """A server that lists `definitions`, `page` at a time, and echoes calls."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    async def listed(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int(params.cursor) if params is not None and params.cursor else 0
        tools = [types.Tool.model_validate(one) for one in definitions[start : start + page]]
        more = str(start + page) if start + page < len(definitions) else None
        return types.ListToolsResult(tools=tools, next_cursor=more)

    async def call(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = json.dumps([params.name, params.arguments], sort_keys=True)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("tools", on_list_tools=listed, on_call_tool=call)


async def _serve(server: Any) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main(what: str) -> None:
    """Serves, or misbehaves."""
    if what == "hang":
        # Ends with the pipe: the client closes it when it gives up.
        sys.stdin.read()
    elif what == "garbage":
        for _ in range(200):
            sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "result": {"tools": [{}]}}\nnot json at all\n')
        sys.stdout.flush()
        time.sleep(0)
        sys.stdin.read()
    elif what != "exit":
        import anyio

        anyio.run(_serve, make(json.loads(Path(what).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(sys.argv[1])
