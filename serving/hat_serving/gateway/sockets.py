"""Sockets to engines and tools: no Nagle delay, so that small requests and chunks leave at once; bounded bodies."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp


def connector(limit: int = 1024) -> aiohttp.TCPConnector:
    """A pool of at most `limit` kept connections."""
    return aiohttp.TCPConnector(limit=limit, keepalive_timeout=60, socket_factory=no_delay)


def no_delay(address: tuple[Any, ...]) -> socket.socket:
    """A non-blocking socket for an address of `getaddrinfo`, with TCP_NODELAY."""
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    if made.type == socket.SOCK_STREAM:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


async def at_most(content: aiohttp.StreamReader, limit: int) -> bytes:
    """A body to its end, or its first `limit` bytes; `read` alone gives what happens to be there."""
    parts: list[bytes] = []
    size = 0
    while size < limit and (part := await content.readany()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:limit]
