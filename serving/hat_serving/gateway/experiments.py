"""`/admin/v1/experiments…` for who runs experiments, and `/v1/events` for the shop that tells what viewers did.

Always holds: experiments need an admin token, events a client's; a batch of events answers for each event by its key, and
only a conflict (the same key with other content) is an error. Not here: what an experiment is (trials, experiment.*).
"""

from __future__ import annotations

import asyncio

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hat_serving.experiment.events import MAX_BATCH, Event, Events
from hat_serving.experiment.model import ExperimentSpec
from hat_serving.gateway.admin import Admin, Guard, read
from hat_serving.gateway.trials import Trials


class EventsBody(BaseModel):
    """`POST /v1/events`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: tuple[Event, ...] = Field(min_length=1, max_length=MAX_BATCH)


class StopBody(BaseModel):
    """`POST /admin/v1/experiments/{name}/stop`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(default="", max_length=500)
    keep: str = Field(default="", max_length=64)
    """Arm on which running conversations end."""


class Experiments:
    """The routes."""

    def __init__(self, trials: Trials, events: Events, admin: Admin) -> None:
        self._trials = trials
        self._events = events
        self._admin = admin

    def routes(self, translated: Guard, guarded: Guard) -> list[Route]:
        """`translated` turns errors into answers, `guarded` asks for a client's token too."""
        base = "/admin/v1/experiments"
        return [
            Route(base, translated(self.listing), methods=["GET"]),
            Route(base, translated(self.create), methods=["POST"]),
            Route(base + "/{name}", translated(self.show), methods=["GET"]),
            Route(base + "/{name}/start", translated(self.start), methods=["POST"]),
            Route(base + "/{name}/stop", translated(self.stop), methods=["POST"]),
            Route("/v1/events", guarded(self.events), methods=["POST"]),
        ]

    async def listing(self, request: Request) -> Response:
        """`GET /admin/v1/experiments`."""
        self._admin.actor(request)
        return _json({"items": await asyncio.to_thread(self._trials.listing)})

    async def create(self, request: Request) -> Response:
        """`POST /admin/v1/experiments`: a draft."""
        actor = self._admin.actor(request)
        spec = await read(request, ExperimentSpec)
        return _json(await asyncio.to_thread(self._trials.create, spec, actor), 201)

    async def show(self, request: Request) -> Response:
        """`GET /admin/v1/experiments/{name}` with its results."""
        self._admin.actor(request)
        return _json(await asyncio.to_thread(self._trials.show, request.path_params["name"]))

    async def start(self, request: Request) -> Response:
        """`POST …/start`."""
        actor = self._admin.actor(request)
        return _json(await asyncio.to_thread(self._trials.start, request.path_params["name"], actor))

    async def stop(self, request: Request) -> Response:
        """`POST …/stop`."""
        actor = self._admin.actor(request)
        body = await read(request, StopBody)
        name = request.path_params["name"]
        return _json(await asyncio.to_thread(self._trials.stop, name, actor, body.reason, body.keep))

    async def events(self, request: Request) -> Response:
        """`POST /v1/events`: 409 when one of them conflicts; the others are stored all the same."""
        body = await read(request, EventsBody)
        outcomes = await asyncio.to_thread(self._events.add, body.events)
        told = [{"key": one.key, "outcome": outcome} for one, outcome in zip(body.events, outcomes, strict=True)]
        return _json({"items": told}, 409 if "conflict" in outcomes else 200)


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, headers={"Cache-Control": "no-store"}, media_type="application/json")
