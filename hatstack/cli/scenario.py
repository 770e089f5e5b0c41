"""`hat scenario serve`: the tools of a simulated room as an MCP server."""

from __future__ import annotations

from typing import Annotated

import typer

from hatstack import paths
from hatstack.cli.failure import UnavailableError, UsageError
from hatstack.cli.output import Output, say

app = typer.Typer(no_args_is_help=True, help="Simulated rooms.")


@app.callback()
def _noun() -> None:
    """Simulated rooms."""


@app.command("serve")
def serve(
    harness: Annotated[str, typer.Option("--harness", help="Harness whose tools are served.")] = "live-commerce",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the room.")] = 1,
    difficulty: Annotated[int, typer.Option("--difficulty", help="How hard the room is.")] = 1,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; the next free one when taken.")] = 8740,
    transport: Annotated[str, typer.Option("--transport", help="http, or stdio.")] = "http",
    output: Output = None,
) -> None:
    """Serve the tools of a simulated live-commerce room over MCP until Ctrl-C."""
    if transport not in ("http", "stdio"):
        raise UsageError(f"no transport {transport!r}", place="--transport", cure="http or stdio")
    from hat_harness.load import load_harness
    from hat_scenarios.live_commerce.server import room_backend
    from hat_scenarios.live_commerce.server import serve as serve_room

    loaded = load_harness(paths.harness(harness))
    backend = room_backend(seed, difficulty)
    if transport == "http":
        port = free_port(host, port)
        say(f"serving the tools of {loaded.name} at http://{host}:{port}/mcp")
    serve_room(loaded, host, port, backend=backend, transport=transport)


def free_port(host: str, wanted: int, tries: int = 20) -> int:
    """`wanted`, or the next port that is free."""
    import socket

    for port in range(wanted, min(wanted + tries, 65536)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UnavailableError(f"no free port from {wanted} on", place=host, cure="give another --port")
