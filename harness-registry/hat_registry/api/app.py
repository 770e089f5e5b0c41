"""The application: routes, limits, error handlers, health. One process serves it; any number may share a database.

Not here: the console's pages, which mount the same routes and add their own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.middleware.gzip import GZipMiddleware

from hat_registry.api import problem
from hat_registry.api.routes import account, harness, history, overview, proposal, release
from hat_registry.archive import MAX_BYTES
from hat_registry.registry import Registry

log = logging.getLogger("hatstack.registry")
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def create_app(registry: Registry, *, open_access: bool = False, read_only: bool = False) -> FastAPI:
    """The API over `registry`. `open_access` lets everybody in while no account exists (a laptop on loopback)."""
    app = FastAPI(
        title="hatstack registry", version="1", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json"
    )
    app.state.registry = registry
    app.state.open_access = open_access
    app.state.read_only = read_only
    app.add_middleware(GZipMiddleware, minimum_size=1024)

    @app.middleware("http")
    async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > 2 * MAX_BYTES:
            return problem.response(
                413, "invalid_input", "the request body is too large", cure=f"at most {MAX_BYTES} bytes"
            )
        answer = await call_next(request)
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    problem.install(app)
    for routes in (overview, harness, proposal, history, release, account):
        app.include_router(routes.router, prefix="/api/v1")

    @app.get("/healthz", include_in_schema=False)
    async def _alive() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/readyz", include_in_schema=False)
    async def _ready() -> PlainTextResponse:
        with registry.database.read() as tx:
            tx.exec_driver_sql("select 1")
        return PlainTextResponse("ok")

    return app
