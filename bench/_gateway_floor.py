"""The floor of the gateway's benches: a raw ASGI application that passes bodies on and does nothing else.

uvicorn with uvloop and httptools, aiohttp to the upstream, orjson to read the body (a gateway must know whether to stream).
Run: python bench/_gateway_floor.py UPSTREAM_URL PORT
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import orjson
import uvicorn


class PassThrough:
    """The application."""

    def __init__(self, upstream: str) -> None:
        self.url = upstream + "/v1/chat/completions"
        self.client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            return
        if self.client is None:
            self.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        stream = orjson.loads(body).get("stream", False)
        async with self.client.post(self.url, data=body, headers={"Content-Type": "application/json"}) as answer:
            kind = answer.headers["Content-Type"].encode()
            head = {"type": "http.response.start", "status": answer.status, "headers": [(b"content-type", kind)]}
            if not stream:
                content = await answer.read()
                head["headers"].append((b"content-length", str(len(content)).encode()))
                await send(head)
                await send({"type": "http.response.body", "body": content})
                return
            await send(head)
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        PassThrough(sys.argv[1]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        log_level="warning",
        access_log=False,
        lifespan="off",
        loop="uvloop",
        http="httptools",
    )
