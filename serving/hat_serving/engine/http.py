"""HTTP pieces of the API: bodies with a bound, errors in SGLang's shapes, event streams that notice a lost client.

Always holds: an over-long body is refused before it is held in memory; when the client goes, the handler's work is
cancelled at once. Not here: what routes answer (api).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hat_serving.engine.errors import CallError
from hat_serving.engine.metrics import Metrics
from hat_serving.engine.openai import error_body
from hat_serving.engine.protocol import describe

B = TypeVar("B", bound=BaseModel)
T = TypeVar("T")


class JsonResponse(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return orjson.dumps(content)


class BadBodyError(CallError):
    """A body that cannot be read; SGLang's validation error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message, status=status, type_name="Bad Request")


class ClientGoneError(Exception):
    """The client closed the connection before the answer."""


async def read_body(request: HttpRequest, kind: type[B], limit: int, *, optional: bool = False) -> B:
    """The validated JSON body. BadBodyError."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BadBodyError(f"the body is larger than {limit} bytes", status=413)
        chunks.append(chunk)
    body = b"".join(chunks)
    if optional and not body:
        return kind.model_validate({})
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise BadBodyError("Unsupported Media Type: Only 'application/json' is allowed")
    try:
        return kind.model_validate(orjson.loads(body))
    except ValidationError as error:
        raise BadBodyError(describe(error)) from None
    except orjson.JSONDecodeError as error:
        raise BadBodyError(f"1 validation error:\n  JSON decode error: {error}") from None


def openai_error(error: CallError) -> Response:
    """An error of the OpenAI routes."""
    return JsonResponse(error_body(error.message, error.type_name, error.status), status_code=error.status)


async def while_connected(request: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; it is cancelled, and ClientGoneError raised, when the client goes."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events, each sent as it comes."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        self._events = events
        self.background = None
        self.status_code = 200
        self.init_headers({"content-type": "text/event-stream; charset=utf-8"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end or until the client goes."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            gone.cancel()
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, send: Send) -> None:
        async for event in self._events:
            if event:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Gate:
    """ASGI middleware: counts requests by route and asks for the API key where one is set."""

    def __init__(self, app: ASGIApp, metrics: Metrics | None, api_key: str, open_paths: frozenset[str]) -> None:
        self._app, self._metrics, self._api_key, self._open = app, metrics, api_key, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method = scope["path"], scope["method"]
        if self._api_key and method != "OPTIONS" and path not in self._open:
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            if given != f"Bearer {self._api_key}":
                await JsonResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, send)
                return
        if self._metrics is None:
            await self._app(scope, receive, send)
            return
        await self._counted(self._metrics, scope, receive, send, path, method)

    async def _counted(
        self, metrics: Metrics, scope: Scope, receive: Receive, send: Send, path: str, method: str
    ) -> None:
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics.http_active.labels(endpoint=path, method=method).inc()
        try:
            await self._app(scope, receive, noting)
        finally:
            endpoint = path if status != 404 else "unmatched"
            metrics.http_active.labels(endpoint=path, method=method).dec()
            metrics.http_requests.labels(endpoint=endpoint, method=method).inc()
            metrics.http_responses.labels(endpoint=endpoint, status_code=str(status), method=method).inc()
