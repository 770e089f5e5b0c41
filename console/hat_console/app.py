"""The console's application: the registry's API, the pages over it, static files, sign-in.

Not here: pages (hat_console.pages), rules (hat_registry).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hat_console.oidc import Oidc, OidcSettings
from hat_console.pages import (
    canaries,
    chat,
    entrance,
    evaluations,
    experiments,
    harnesses,
    history,
    judgings,
    labels,
    live,
    models,
    people,
    pipelines,
    proposals,
    releases,
    replays,
    runs,
    suites,
    traces,
    webhooks,
)
from hat_console.pages.judgings import Judge
from hat_console.pulse import Prices, Pulse
from hat_console.session import Sessions, check_change
from hat_console.view import Views, wants_json
from hat_harness.errors import PlatformError
from hat_pipelines.desk import look
from hat_pipelines.desk.desk import Desk
from hat_registry import accounts
from hat_registry.api import problem
from hat_registry.api.access import local, nobody
from hat_registry.api.app import create_app as create_api
from hat_registry.api.limits import Buckets
from hat_registry.api.problem import STATUS
from hat_registry.errors import AuthenticationError, ForbiddenError, LimitedError, NotFoundError
from hat_registry.outbound import networks
from hat_registry.registry import Registry
from hat_serving.gateway.client import GatewayClient, admin_token

UNSAFE = {"POST", "PUT", "PATCH", "DELETE"}
RESOURCES = tuple(
    module.api
    for module in (
        canaries, evaluations, judgings, labels, pipelines, runs, experiments, chat, replays, suites, traces, live,
    )
)  # fmt: skip
"""What this package adds to the registry's API."""
PAGES = tuple(
    module.router
    for module in (
        entrance, harnesses, proposals, history, releases, canaries, people, evaluations, judgings, labels, pipelines,
        runs, experiments, chat, models, webhooks, replays, suites, traces, live,
    )
)  # fmt: skip


class ConsoleSettings(BaseModel):
    """What the console needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_key: bytes = Field(min_length=16, repr=False)
    """Signs session cookies; the same on every replica."""
    open_access: bool = False
    """While no account exists, everybody is admin: a laptop on loopback."""
    read_only: bool = False
    secure_cookies: bool = False
    """Only over HTTPS; on behind TLS."""
    judge: Judge = Judge()
    """Who judges an evaluation's sessions anew; without an endpoint pages say how to."""
    runs: Path | None = None
    """Runs directory whose evaluations are shown; None: none are."""
    links: dict[str, str] = Field(default_factory=dict)
    """Where a run can also be seen: base URLs of `mlflow`, `kfp` (run details), `argo` (workflows)."""
    rollouts: str = ""
    """Where canary rollouts are: `cluster`, or a folder; empty: none are shown."""
    gateway: str = ""
    """Address of the gateway whose experiments are shown and that the chat page talks to; empty: none."""
    gateway_workspace: str = "default"
    """Workspace whose people see that gateway and steer it; for others there is none."""
    gateway_metrics: tuple[str, ...] = ()
    """Metrics pages of the gateway's replicas; by default that of its address."""
    prices: Prices = Prices()
    """Of tokens, for the cost per reply."""
    gateway_token: Path | None = None
    """File with the gateway's admin token; HATSTACK_GATEWAY_TOKEN goes first."""
    oidc: OidcSettings | None = None
    """A provider that people may sign in through; None: passwords only."""
    outbound: tuple[str, ...] = ()
    """Private networks (CIDR) that webhooks may reach."""
    send_webhooks: bool = True
    """Whether this process sends webhooks; others may do it."""
    writes_per_s: float = Field(default=20.0, gt=0)
    """Changes that one account may make per second on average; ten seconds' worth at once."""
    log_requests: bool = False
    """Log every request, not only changes, errors and slow ones."""


class Identify:
    """Puts actor and CSRF token into the request's state before any route runs. Plain ASGI, for speed."""

    def __init__(self, app: ASGIApp, registry: Registry, settings: ConsoleSettings) -> None:
        self._app = app
        self._registry = registry
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            try:
                refused = _identify(request, self._registry, self._settings)
            except PlatformError as error:  # the database is away: no route is reached
                refused = problem.of(error) if _is_api(request) or wants_json(request) else _problem(request, error)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def create_app(registry: Registry, settings: ConsoleSettings, desk: Desk | None = None) -> FastAPI:
    """The API and the pages over `registry`; without a desk no runs are started from pages."""
    app = create_api(
        registry, open_access=settings.open_access, read_only=settings.read_only, outbound=networks(settings.outbound),
        writes_per_s=settings.writes_per_s, log_requests=settings.log_requests, send_webhooks=settings.send_webhooks,
    )  # fmt: skip
    app.state.views = Views()
    app.state.sessions = Sessions(registry, settings.session_key, secure=settings.secure_cookies)
    app.state.guesses = Buckets(10 / 300, 10)
    app.state.guessed_names = Buckets(100 / 3600, 100)
    app.state.oidc = (
        Oidc(settings.oidc, settings.session_key, secure=settings.secure_cookies) if settings.oidc else None
    )
    static = str(files(__package__).joinpath("static"))
    app.mount("/static", StaticFiles(directory=static), name="static")
    app.state.runs = settings.runs
    app.state.desk, app.state.links = desk, settings.links
    app.state.gateway = (
        GatewayClient(settings.gateway, lambda: admin_token(settings.gateway_token)) if settings.gateway else None
    )
    pages_of = settings.gateway_metrics or ((f"{settings.gateway.rstrip('/')}/metrics",) if settings.gateway else ())
    app.state.pulse = Pulse(pages_of, settings.prices) if pages_of else None
    app.state.gateway_workspace = settings.gateway_workspace
    app.state.rollouts = canaries.connect(settings.rollouts) if settings.rollouts else None
    app.state.judge = settings.judge
    for router in PAGES:
        app.include_router(router, include_in_schema=False)
    for router in RESOURCES:
        app.include_router(router)

    app.add_middleware(Identify, registry=registry, settings=settings)
    _errors(app)
    _prepared(app)
    return app


def _prepared(app: FastAPI) -> None:
    """Let the server take requests only once what the first visitor would wait for is done."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def life(started: FastAPI) -> AsyncIterator[Any]:
        await asyncio.to_thread(app.state.views.prepare)
        if app.state.runs is not None:
            await asyncio.to_thread(look.records, app.state.runs)
        async with inner(started) as state:
            yield state

    app.router.lifespan_context = life


def _identify(request: Request, registry: Registry, settings: ConsoleSettings) -> Response | None:
    """Put actor and CSRF token into the request's state; a response where the request must not go on.

    On an open laptop a program needs no CSRF token; a browser says by its headers that it is one.
    """
    if request.headers.get("authorization") or request.url.path.startswith("/static/"):
        return None
    sessions: Sessions = request.app.state.sessions
    browser = sessions.read(request)
    if browser is not None:
        request.state.actor, request.state.csrf = browser.actor, browser.csrf
    elif settings.open_access and local(request) and (request.method in UNSAFE or not _is_api(request)):
        with registry.database.read() as tx:
            empty = nobody(tx)
        if empty:
            request.state.actor, request.state.csrf = accounts.SYSTEM, sessions.csrf("")
    program = browser is None and not ({"origin", "sec-fetch-site"} & set(request.headers))
    if request.method in UNSAFE and _is_api(request) and not program:
        try:
            check_change(request, getattr(request.state, "csrf", ""), request.headers.get("x-csrf-token", ""))
        except ForbiddenError as error:
            if hasattr(request.state, "actor"):
                return problem.response(403, error.kind, error.message, cure=error.cure)
    return None


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _errors(app: FastAPI) -> None:
    """Errors as pages for browsers; programs keep the API's problem documents."""
    as_problem = app.exception_handlers[PlatformError]

    @app.exception_handler(PlatformError)
    async def _platform(request: Request, error: PlatformError) -> Response:
        if request.url.path.startswith("/api/") or wants_json(request):
            answer = as_problem(request, error)
            return await answer  # type: ignore[misc, no-any-return]  # FastAPI types handlers as sync or async
        if isinstance(error, AuthenticationError):
            return RedirectResponse(f"/login?next={request.url.path}", 303)
        return _problem(request, error)


def _problem(request: Request, error: PlatformError) -> Response:
    views: Views = request.app.state.views
    status = 404 if isinstance(error, NotFoundError) else 429 if isinstance(error, LimitedError) else STATUS[error.kind]
    body = {"status": status, "kind": error.kind, "title": error.message, "place": error.place, "cure": error.cure}
    problems = [str(one) for one in getattr(error, "problems", ())]
    return views.page(request, "error.html", {**body, "problems": problems}, status=status)
