"""MCP servers by address: whoever takes an address from somebody else asks no inner service with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hat_registry.errors import InvalidError
from hat_registry.mcp_tools import discover
from hat_registry.outbound import networks

INNER = [
    "http://169.254.169.254/latest/meta-data",
    "https://10.0.0.1/mcp",
    "http://[::1]:9/mcp",
    "http://2130706433/mcp",
]


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(500)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcp", asked
    server.shutdown()


@pytest.mark.parametrize("address", INNER)
def test_an_inner_address_is_refused_before_it_is_asked(address: str) -> None:
    with pytest.raises(InvalidError, match=r"not a public address|plain HTTP"):
        discover(address, networks_allowed=())


def test_nothing_is_sent_to_an_inner_service(listener: tuple[str, list[str]]) -> None:
    url, asked = listener
    with pytest.raises(InvalidError):
        discover(url, networks_allowed=())
    assert asked == []
    with pytest.raises(Exception, match="MCP"):
        discover(url, networks_allowed=networks(["127.0.0.0/8"]))
    assert asked
