"""`hat scenario serve` is an MCP server that offers exactly the tools of the harness and answers a call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hat_harness.load import load_harness
from hatstack import paths

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.asyncio
async def test_the_tools_are_those_of_the_harness() -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = ["-m", "hatstack.cli.main", "scenario", "serve", "--transport", "stdio"]
    parameters = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        listed = await session.list_tools()
        harness = load_harness(paths.harness("live-commerce"))
        assert {tool.name for tool in listed.tools} == {tool.name for tool in harness.tools}
        failed = await session.call_tool("no_such_tool", {})
        assert failed.is_error
