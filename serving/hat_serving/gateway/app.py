"""The gateway over HTTP (Starlette): OpenAI's routes, room messages, health, metrics.

Always holds: a body larger than the limit is refused while it is read; a client that goes away cancels its turn, which
stops the engine's generation; an error is a problem document with a closed `kind`, or OpenAI's error shape on its routes.
Not here: turns (host), bodies (chat).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from prometheus_client import generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hat_harness.errors import PlatformError
from hat_serving.errors import RequestError
from hat_serving.gateway import answers, chat, streaming
from hat_serving.gateway.admin import Admin
from hat_serving.gateway.experiments import Experiments
from hat_serving.gateway.host import Host
from hat_serving.gateway.kept import Kept
from hat_serving.gateway.replays import Replays
from hat_serving.gateway.turns import Answer
from hat_serving.gateway.watch import Watch

log = logging.getLogger("hatstack.gateway")
STATUS = {
    "invalid_input": 400,
    "usage": 400,
    "conflict": 409,
    "forbidden": 401,
    "check_failed": 409,
    "unavailable": 503,
    "exhausted": 429,
    "internal": 500,
}
JSON = "application/json"
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class HttpSettings(BaseModel):
    """What the HTTP side needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pseudonym_key: bytes = Field(min_length=16, repr=False)
    """Keys the pseudonyms of viewers, rooms and conversations; the same on every replica."""
    tokens: frozenset[str] = Field(default=frozenset(), repr=False)
    """SHA-256 (hex) of the bearer tokens that are let in; empty: everybody (loopback only)."""
    max_body: int = Field(default=1024 * 1024, ge=1024)


def create_app(
    host: Host, settings: HttpSettings, lifespan: Callable[[], Any] | None = None, sides: Sides | None = None
) -> Starlette:
    """The application. `lifespan` gives an async context manager around its life (engines, tools, writers)."""
    routes = Routes(host, settings)

    @asynccontextmanager
    async def _life(_app: Starlette) -> AsyncIterator[None]:
        if lifespan is None:
            yield
            await host.drain()
            return
        async with lifespan():
            yield
            await host.drain()

    return Starlette(
        lifespan=_life,
        routes=[
            Route("/v1/chat/completions", routes.guarded(routes.chat_completions), methods=["POST"]),
            Route("/v1/responses", routes.guarded(routes.responses), methods=["POST"]),
            Route("/v1/rooms/{room}/messages", routes.guarded(routes.room), methods=["POST"]),
            Route("/healthz", routes.alive, methods=["GET"]),
            Route("/readyz", routes.ready, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/v1/models", routes.guarded(routes.models), methods=["GET"]),
            *(sides.routes(routes) if sides is not None else ()),
            Route("/{rest:path}", routes.nothing, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ],
    )


@dataclass(frozen=True, slots=True)
class Sides:
    """What stands beside the viewers' routes."""

    admin: Admin
    experiments: Experiments
    kept: Kept | None = None
    replays: Replays | None = None

    def routes(self, routes: Routes) -> list[Route]:
        """Their routes."""
        return [
            *self.admin.routes(routes.translated),
            *self.experiments.routes(routes.translated, routes.guarded),
            *(self.kept.routes(routes.translated) if self.kept is not None else ()),
            *(self.replays.routes(routes.translated) if self.replays is not None else ()),
        ]


class Routes:
    """The handlers, bound to one host."""

    def __init__(self, host: Host, settings: HttpSettings) -> None:
        self._host = host
        self._settings = settings

    def guarded(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler with authentication and the translation of errors."""

        async def let_in(request: Request) -> Response:
            if not self._let_in(request):
                return _error(401, "forbidden", "not signed in", cure="send Authorization: Bearer <token>")
            return await handler(request)

        return self.translated(let_in)

    def translated(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler with the translation of errors."""

        async def run(request: Request) -> Response:
            try:
                return await handler(request)
            except PlatformError as error:
                return _error(STATUS[error.kind], error.kind, error.message, error.place, error.cure)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                log.exception("unexpected error in %s", request.url.path, exc_info=error)
                return _error(500, "internal", "something went wrong on the server", cure="look into its log")

        return run

    async def chat_completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        body = chat.read_json(await self._body(request))
        parsed = chat.read_chat(body, *self._who(request, body))
        if parsed.stream:
            turn = await streaming.begin(self._host, parsed)
            return streaming.EventStream(turn, streaming.ChatEvents(parsed, turn.opening), HEADERS)
        answer = await self._turn(request, parsed)
        return _json(answers.chat_answer(answer, parsed.ask.name), answer)

    async def responses(self, request: Request) -> Response:
        """`POST /v1/responses`."""
        body = chat.read_json(await self._body(request))
        parsed = chat.read_responses(body, *self._who(request, body))
        if parsed.stream:
            turn = await streaming.begin(self._host, parsed)
            return streaming.EventStream(turn, streaming.ResponseEvents(parsed), HEADERS)
        answer = await self._turn(request, parsed)
        return _json(answers.response_answer(answer, parsed.ask.name), answer)

    async def room(self, request: Request) -> Response:
        """`POST /v1/rooms/{room}/messages`; 204 for silence."""
        room = request.path_params["room"]
        body = chat.read_json(await self._body(request))
        parsed = chat.read_room({"model": room, **body}, room, self._pseudonym)
        answer = await self._turn(request, parsed)
        if answer.turn.outcome == "silence":
            return Response(status_code=204, headers={**HEADERS, "x-hatstack-arm": answer.arm})
        return _json(answers.room_answer(answer, parsed.details), answer)

    async def models(self, _request: Request) -> Response:
        """`GET /v1/models`: what may stand in `model`."""
        items = [{"id": name, "object": "model", "created": 0, "owned_by": "hatstack"} for name in self._host.names()]
        return Response(orjson.dumps({"object": "list", "data": items}), headers=HEADERS, media_type=JSON)

    async def nothing(self, request: Request) -> Response:
        """Whatever is not offered, in words."""
        place = f"{request.method} {request.url.path[:200]}"
        return _error(404, "invalid_input", "this route is not offered", place, "docs/gateway.md lists those that are")

    async def alive(self, _request: Request) -> Response:
        """`GET /healthz`: the process answers."""
        return Response("ok", media_type="text/plain")

    async def ready(self, _request: Request) -> Response:
        """`GET /readyz`: new turns are taken."""
        if self._host.draining:
            return Response("draining", 503, media_type="text/plain")
        return Response("ok", media_type="text/plain")

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics` for Prometheus."""
        content = generate_latest(self._host.metrics.collector)
        return Response(content, media_type="text/plain; version=0.0.4")

    # ---- helpers ----------------------------------------------------------------------------------------------

    def _let_in(self, request: Request) -> bool:
        if not self._settings.tokens:
            return True
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(secret.strip().encode()).hexdigest()
        known = [hmac.compare_digest(digest, token) for token in self._settings.tokens]
        return scheme.lower() == "bearer" and any(known)

    def _pseudonym(self, identity: str) -> str:
        return pseudonym(self._settings.pseudonym_key, identity)

    def _who(self, request: Request, body: Any) -> tuple[str, str]:
        """(conversation, unit) as pseudonyms; "" where the client names none."""
        name = request.headers.get("x-hatstack-conversation", "")
        if len(name) > 256:
            raise RequestError("at most 256 characters", place="X-Hatstack-Conversation")
        given = body.get("conversation")
        name = name or (given if isinstance(given, str) else "")
        user = body.get("user") if isinstance(body.get("user"), str) else ""
        return self._pseudonym(name) if name else "", self._pseudonym(user or name) if (user or name) else ""

    async def _body(self, request: Request) -> bytes:
        size = 0
        parts: list[bytes] = []
        async for part in request.stream():
            size += len(part)
            if size > self._settings.max_body:
                raise RequestError(f"the body has more than {self._settings.max_body} bytes", place="body")
            parts.append(part)
        return b"".join(parts)

    async def _turn(self, request: Request, parsed: chat.Parsed) -> Answer:
        """Run the turn and give it up when the client goes away."""
        watch = Watch(request.receive)
        try:
            return await self._host.turn(parsed.ask)
        except asyncio.CancelledError:
            if not watch.gone:
                raise
            raise ClientDisconnect from None
        finally:
            watch.stop()


def pseudonym(key: bytes, identity: str) -> str:
    """A keyed pseudonym: the same for the same id, of no use without the key."""
    return hmac.digest(key, identity.encode(), "sha256").hex()[:24]


def _json(body: Any, answer: Answer) -> Response:
    headers = {**HEADERS, "x-hatstack-arm": answer.arm, "x-hatstack-conversation": answer.conversation}
    return Response(orjson.dumps(body), headers=headers, media_type=JSON)


def _error(status: int, kind: str, title: str, place: str = "", cure: str = "") -> Response:
    headers = dict(HEADERS)
    if status in {429, 503}:
        headers["Retry-After"] = "1"
    return Response(
        orjson.dumps({"error": streaming.shape(kind, title, place, cure)}), status, headers=headers, media_type=JSON
    )
