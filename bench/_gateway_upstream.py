"""An engine and a tool server that answer at once, for the gateway's benches: canned bytes over asyncio, one process.

`POST /v1/chat/completions`: a body with `"stream":true` gets 34 chunks in separate writes, else one JSON body. A body that
knows `get_item` gets a call of it, or a reply when its last message is the tool's. `POST /tools/…`: "42". Prints its port.
"""

from __future__ import annotations

import asyncio
import json
import socket

CHUNKS = 34


def _event(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 10, "completion_tokens": 32, "total_tokens": 42}
_WHOLE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello there , thanks bye"},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    },
    separators=(",", ":"),
).encode()
_STREAM = [
    _event({"role": "assistant", "content": ""}),
    *(_event({"content": "word "}) for _ in range(CHUNKS - 3)),
    _event({}, "stop", usage=USAGE),
    b"data: [DONE]\n\n",
]
_CALL = [
    _event({"role": "assistant", "content": ""}),
    _event(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get_item", "arguments": '{"item": "mug"}'},
                }
            ]
        }
    ),
    _event({}, "tool_calls", usage=USAGE),
    b"data: [DONE]\n\n",
]
_REPLY = [
    _event({"role": "assistant", "content": ""}),
    *(_event({"content": word}) for word in ("it ", "costs ", "42 ", "yuan ", "bye")),
    _event({}, "stop", usage=USAGE),
    b"data: [DONE]\n\n",
]


def _plain(content: bytes, kind: bytes = b"application/json") -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\ncontent-length: " + str(len(content)).encode()
    return [head + b"\r\n\r\n" + content]


def _chunked(events: list[bytes]) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%s\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]


WHOLE, STREAM, CALL, REPLY, TOOL = (
    _plain(_WHOLE),
    _chunked(_STREAM),
    _chunked(_CALL),
    _chunked(_REPLY),
    _plain(b"42", b"text/plain"),
)
MODELS = _plain(b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"bench"}]}')


def answer(head: bytes, body: bytes) -> list[bytes]:
    """The canned pieces for a request."""
    if head.startswith(b"POST /tools/"):
        return TOOL
    if head.startswith(b"GET"):
        return MODELS
    if b'"stream":true' not in body and b'"stream": true' not in body:
        return WHOLE
    if b"get_item" in body:  # the last message says what the turn waits for
        return REPLY if b'"role":"tool"' in body[body.rfind(b'"role":') :] else CALL
    return STREAM


class Upstream(asyncio.Protocol):
    """One connection, requests one after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            lower = head.lower()
            start = lower.find(b"content-length:")
            length = int(lower[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                if b"expect: 100-continue" in lower:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
            for piece in answer(head, body):
                self.transport.write(piece)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
