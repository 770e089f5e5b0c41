"""The application: routes, limits, error handlers, health, webhooks. Any number of processes may share a database.

Not here: the console's pages, which mount the same routes and add their own.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hat_registry import outbound as outgoing
from hat_registry.api import fast, problem
from hat_registry.api.limits import Buckets
from hat_registry.api.routes import (
    account,
    canary,
    harness,
    history,
    mlflow,
    model,
    overview,
    proposal,
    release,
    watch,
    webhook,
)
from hat_registry.archive import MAX_BYTES
from hat_registry.logs import Traced
from hat_registry.registry import Registry
from hat_registry.webhook_sender import Sender

log = logging.getLogger("hatstack.registry")
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

NOWHERE = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
"""A request that no route answers."""


class Guard:
    """Bounds the body and sets security headers. Plain ASGI: Starlette's decorator costs a task and a queue a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or int(length) > 2 * MAX_BYTES:
            told = problem.response(
                413, "invalid_input", "the request body is too large", cure=f"at most {MAX_BYTES} bytes"
            )
            await told(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in SECURITY_HEADERS if pair[0] not in present),
                ]
            await send(message)

        await self._app(scope, receive, with_headers)


def create_app(
    registry: Registry,
    *,
    open_access: bool = False,
    read_only: bool = False,
    outbound: Sequence[outgoing.Network] = (),
    send_webhooks: bool = True,
    writes_per_s: float = 20.0,
    log_requests: bool = False,
) -> FastAPI:
    """The API over `registry`.

    `open_access` lets everybody in while no account exists (a laptop on loopback); `outbound` are private networks that
    webhooks may reach; `writes_per_s` bounds the changes of one account, ten seconds' worth at once.
    """
    hub = watch.Hub(registry.database)
    sender = Sender(registry.database, outbound)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        for route in app.router.routes:  # FastAPI builds what was included when it is first compared with a request
            route.matches(NOWHERE)
        hub.closing = False
        if send_webhooks and not read_only:
            sender.start()
        yield
        await hub.close()
        sender.close()

    app = FastAPI(
        title="hatstack registry", version="1", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json",
        lifespan=life,
    )  # fmt: skip
    app.state.registry = registry
    app.state.open_access = open_access
    app.state.read_only = read_only
    app.state.outbound = tuple(outbound)
    app.state.hub = hub
    app.state.writes = Buckets(writes_per_s, max(1, int(10 * writes_per_s)))
    app.state.wrong = Buckets(0.1, 30)
    app.add_middleware(GZipMiddleware, minimum_size=1024)

    app.add_middleware(Guard)
    app.add_middleware(Traced, all_requests=log_requests, broken=problem.broken)

    problem.install(app)
    # Before the described routes: the same answers, for programs that ask many times a second.
    app.router.routes[:0] = fast.routes("/api/v1")
    for routes in (overview, harness, proposal, history, release, account, canary, watch, webhook, mlflow, model):
        app.include_router(routes.router, prefix="/api/v1")
    _health(app, registry)
    return app


def _health(app: FastAPI, registry: Registry) -> None:
    """The routes that a load balancer asks."""

    @app.get("/healthz", include_in_schema=False)
    async def _alive() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/readyz", include_in_schema=False)
    async def _ready() -> PlainTextResponse:
        with registry.database.read() as tx:
            tx.exec_driver_sql("select 1")
        return PlainTextResponse("ok")
