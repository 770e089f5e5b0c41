"""Engines behind the gateway as they are, without an agent: `/engines/{name}/v1/…` for judges, evaluations and collectors.

A plain ASGI application on the path that costs (docs/results.md): the body goes to the engine byte for byte and the answer
comes back the same way. Always holds: nobody is let in without a token where tokens are set; a client that goes away stops
the engine's generation; every request is counted and leaves a usage record; a fault of the engine is an error in OpenAI's
shape, or a stream that ends with one. Not here: agents (app, host), retries (the caller's).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import aiohttp
import orjson
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry, Counter, Histogram
from yarl import URL

from hat_serving.gateway.sockets import connector
from hat_serving.gateway.upstream import Engine
from hat_serving.gateway.usage import UsageWriter
from hat_serving.gateway.watch import Receive, Watch

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX = "/engines/"
ROUTES = {"v1/chat/completions": "POST", "v1/completions": "POST", "v1/models": "GET"}
MAX_BODY = 8 * 1024 * 1024
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_JSON = [
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class _Counted:
    """Metrics of one engine, their labels bound once."""

    __slots__ = ("failed", "made", "ok", "seconds", "taken")

    def __init__(self, name: str, requests: Counter, tokens: Counter, seconds: Histogram) -> None:
        self.ok, self.failed = requests.labels(name, "ok"), requests.labels(name, "error")
        self.taken, self.made = tokens.labels(name, "in"), tokens.labels(name, "out")
        self.seconds = seconds.labels(name)


class Proxy:
    """The application. `tokens` are SHA-256 (hex) of bearer tokens; empty lets everybody in (loopback only)."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        *,
        tokens: frozenset[str] = frozenset(),
        collector: CollectorRegistry | None = None,
        usage: UsageWriter | None = None,
    ) -> None:
        found = collector or CollectorRegistry()
        requests = Counter(
            "hatstack_gateway_proxied_requests_total",
            "Requests passed to engines",
            ("engine", "outcome"),
            registry=found,
        )
        tokens_of = Counter(
            "hatstack_gateway_proxied_tokens_total",
            "Tokens of passed requests",
            ("engine", "direction"),
            registry=found,
        )
        seconds = Histogram(
            "hatstack_gateway_proxied_seconds", "Passed requests, whole", ("engine",), buckets=SECONDS, registry=found
        )
        self._counted = {name: _Counted(name, requests, tokens_of, seconds) for name in engines}
        self._targets = {
            f"{PREFIX}{name}/{route}": (name, method, URL(f"{engine.url.rstrip('/')}/{route}"), _headers(engine))
            for name, engine in engines.items()
            for route, method in ROUTES.items()
        }
        self._tokens = {bytes.fromhex(token) for token in tokens}
        self._timeout = {name: engine.timeout_s for name, engine in engines.items()}
        self._usage = usage
        self._client: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the engines and write what is left of the records."""
        if self._client is not None:
            await self._client.close()
        if self._usage is not None:
            await asyncio.to_thread(self._usage.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        target = self._targets.get(scope["path"])
        if target is None:
            await _error(send, 404, "no such engine or route", place=scope["path"][:80])
            return
        name, method, url, headers = target
        if scope["method"] != method:
            await _error(send, 405, f"use {method}", place=scope["path"])
            return
        caller = self._caller(scope)
        if caller is None:
            await _error(send, 401, "not signed in; send Authorization: Bearer <token>")
            return
        body = await _body(receive)
        if body is None:
            await _error(send, 400, f"the body has more than {MAX_BODY} bytes, or was cut off", place="body")
            return
        began = time.perf_counter()
        exchange = _Exchange(send)
        watch = Watch(receive)
        try:
            await self._pass(exchange, method, url, headers, body, self._timeout[name])
        except asyncio.CancelledError:
            if not watch.gone:
                raise
            exchange.status = 499
        finally:
            watch.stop()
            self._record(name, caller, exchange, time.perf_counter() - began)

    async def _pass(
        self, exchange: _Exchange, method: str, url: URL, headers: CIMultiDict[str], body: bytes, limit_s: float
    ) -> None:
        if self._client is None:
            # The session belongs to the loop that serves, so it is made by the first request.
            self._client = aiohttp.ClientSession(
                connector=connector(), auto_decompress=False, skip_auto_headers=("User-Agent", "Accept-Encoding")
            )
        try:
            async with (
                asyncio.timeout(limit_s),
                self._client.request(method, url, data=body or None, headers=headers) as answer,
            ):
                if answer.content_type == "text/event-stream":
                    await exchange.stream(answer)
                else:
                    await exchange.whole(answer.status, answer.content_type, await answer.read())
        except TimeoutError:
            await exchange.fail(504, f"the engine did not answer within {limit_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            await exchange.fail(502, f"the engine cannot be reached ({type(error).__name__})")

    def _caller(self, scope: Scope) -> str | None:
        """First 12 hex of the token's digest, "" where none is asked for; None: not let in."""
        if not self._tokens:
            return ""
        for key, value in scope["headers"]:
            if key == b"authorization":
                scheme, _, secret = value.partition(b" ")
                digest = hashlib.sha256(secret.strip()).digest()
                # A digest says nothing of the token, so that how long a set look-up takes tells nothing either.
                return digest.hex()[:12] if scheme.lower() == b"bearer" and digest in self._tokens else None
        return None

    def _record(self, name: str, caller: str, exchange: _Exchange, seconds: float) -> None:
        counted = self._counted[name]
        (counted.ok if exchange.status == 200 and not exchange.broken else counted.failed).inc()
        counted.seconds.observe(seconds)
        taken, made = exchange.usage()
        if taken:
            counted.taken.inc(taken)
        if made:
            counted.made.inc(made)
        if self._usage is not None:
            self._usage.put((time.time(), name, caller, exchange.status, taken, made, seconds))


class _Exchange:
    """What goes back to one client."""

    __slots__ = ("_answer", "_send", "_started", "_tail", "broken", "status")

    def __init__(self, send: Send) -> None:
        self.status = 0
        self.broken = False
        self._send = send
        self._started = False
        self._answer = b""
        self._tail = b""

    async def whole(self, status: int, kind: str, content: bytes) -> None:
        """An answer that is not streamed."""
        self.status = status
        self._answer = content
        head = _JSON if kind == "application/json" else [(b"content-type", kind.encode()), *_JSON[1:]]
        headers = [*head, (b"content-length", str(len(content)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": content})

    async def stream(self, answer: aiohttp.ClientResponse) -> None:
        """A stream, piece by piece as it comes."""
        self.status = answer.status
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *_JSON[1:], (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        self._started = True
        send, read = self._send, answer.content.readany
        while piece := await read():
            self._tail = piece if len(piece) > 1024 else self._tail[-1024:] + piece
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def fail(self, status: int, message: str) -> None:
        """An error: as the answer, or as the last event of a stream that began."""
        self.broken = True
        if not self._started:
            self.status = status
            await _error(self._send, status, message)
            return
        event = b"data: " + orjson.dumps(_told(status, message)) + b"\n\n"
        await self._send({"type": "http.response.body", "body": event})

    def usage(self) -> tuple[int, int]:
        """(prompt, completion) tokens that the engine counted; 0 where it does not say."""
        if self._answer:
            return _counts(self._answer)
        for line in reversed(self._tail.split(b"\n")):
            if line.startswith(b"data:") and b'"usage":{' in line:
                return _counts(line[5:])
        return 0, 0


def _headers(engine: Engine) -> CIMultiDict[str]:
    made = CIMultiDict({"Content-Type": "application/json"})
    if engine.api_key:
        made["Authorization"] = f"Bearer {engine.api_key}"
    return made


async def _body(receive: Receive) -> bytes | None:
    """The body; None when it is too long or the client went away."""
    message = await receive()
    if not message.get("more_body", False) and message["type"] == "http.request":
        first: bytes = message.get("body", b"")
        return first if len(first) <= MAX_BODY else None
    parts, size = [], 0
    while message["type"] == "http.request":
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
    return None


def _counts(body: bytes) -> tuple[int, int]:
    try:
        usage = orjson.loads(body).get("usage") or {}
        return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    except (ValueError, TypeError, AttributeError):
        return 0, 0


def _told(status: int, message: str, place: str = "") -> dict[str, Any]:
    kind = {400: "invalid_input", 401: "forbidden", 404: "invalid_input", 405: "usage"}.get(status, "unavailable")
    return {"error": {"message": message, "type": kind, "param": place or None, "code": kind, "kind": kind}}


async def _error(send: Send, status: int, message: str, place: str = "") -> None:
    content = orjson.dumps(_told(status, message, place))
    headers = [*_JSON, (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def fronted(app: App, proxy: Proxy) -> App:
    """`app`, with the proxy's paths taken before it; the proxy is closed when the application's life ends."""

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await proxy(scope, receive, send)
        elif scope["type"] == "lifespan":
            try:
                await app(scope, receive, send)
            finally:
                await proxy.close()
        else:
            await app(scope, receive, send)

    return front
