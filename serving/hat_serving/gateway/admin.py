"""`/admin/v1/…`: who runs the gateway steers it: arms, weights, promotion, abort, overrides, mute, drain.

Always holds: no route answers without an admin token, also on loopback; every change is written with the token's
fingerprint; the split that is told as effective is the one that all live replicas obey, and null while they differ;
viewers and rooms become pseudonyms before anything is kept. Not here: what a change means (experiment.steering).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hat_harness.digest import harness_digest
from hat_registry.store.database import Database
from hat_serving.errors import RequestError
from hat_serving.experiment import records, steering
from hat_serving.experiment.model import NAME, ArmPlan
from hat_serving.experiment.steering import Steering
from hat_serving.gateway.control import Control, ReplicaView
from hat_serving.gateway.live import Deployment
from hat_serving.gateway.steered import SteeredSource, as_former
from hat_serving.gateway.upstream import Engines

Handler = Callable[[Request], Awaitable[Response]]
Guard = Callable[[Handler], Handler]
Body = TypeVar("Body", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArmBody(_Body):
    """`PUT …/arms/{arm}`."""

    harness: str = Field(default="", max_length=256)
    """`NAME`, `NAME@POINTER` or `NAME@sha256:…`; "" is what the stable arm serves."""
    release: str = Field(default="", max_length=71)
    engine: str = Field(default="", max_length=64)
    """Logical name of an engine that the gateway was started with; "" is the primary."""


class WeightsBody(_Body):
    """`PUT …/weights`."""

    weights: dict[str, float]
    """Arm → percent of the units; the stable arm gets the rest."""


class PromoteBody(_Body):
    """`POST …/arms/{arm}/promote`."""

    urgent: bool = False
    """Running conversations change over at their next message."""


class OverrideBody(_Body):
    """`PUT …/overrides`."""

    viewer: str = Field(min_length=1, max_length=256)
    arm: str = ""
    """"" takes the override away."""


def fingerprint(token: str) -> str:
    """What is written down of an admin token."""
    return "token:" + hashlib.sha256(token.encode()).hexdigest()[:8]


class Admin:
    """The administrative routes over one gateway."""

    def __init__(
        self,
        control: Control,
        source: SteeredSource,
        database: Database,
        *,
        tokens: frozenset[str],
        pseudonym: Callable[[str], str],
        engines: Engines,
        workspace: str = "default",
        drain: Callable[[bool], None],
    ) -> None:
        self._control = control
        self._source = source
        self._database = database
        self._tokens = tokens
        self._pseudonym = pseudonym
        self._engines = engines
        self._workspace = workspace
        self._drain = drain

    def routes(self, guarded: Guard) -> list[Route]:
        """The routes; `guarded` turns errors into answers."""
        one, arm = "/admin/v1/deployments/{name}", "/admin/v1/deployments/{name}/arms/{arm}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/admin/v1/deployments", self.listing),
            ("GET", one, self.show),
            ("GET", one + "/changes", self.changes),
            ("PUT", arm, self.put_arm),
            ("DELETE", arm, self.delete_arm),
            ("PUT", one + "/weights", self.put_weights),
            ("POST", arm + "/abort", self.abort),
            ("POST", arm + "/promote", self.promote),
            ("PUT", one + "/overrides", self.put_override),
            ("PUT", "/admin/v1/rooms/{room}/mute", self.mute),
            ("DELETE", "/admin/v1/rooms/{room}/mute", self.mute),
            ("POST", "/admin/v1/drain", self.drain),
            ("DELETE", "/admin/v1/drain", self.drain),
        ]
        return [Route(path, guarded(handler), methods=[method]) for method, path, handler in table]

    # ---- handlers -------------------------------------------------------------------------------------------------

    def actor(self, request: Request) -> str:
        """Who asks. The error of `forbidden` kind for everybody without an admin token."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(secret.strip().encode()).hexdigest()
        known = [hmac.compare_digest(digest, token) for token in self._tokens]
        if scheme.lower() != "bearer" or not any(known):
            raise ForbiddenError("this needs an admin token", cure="send Authorization: Bearer <admin token>")
        return fingerprint(secret.strip())

    async def listing(self, request: Request) -> Response:
        """`GET /admin/v1/deployments`: names that this replica has served."""
        self.actor(request)
        return _json({"items": self._source.names()})

    async def show(self, request: Request) -> Response:
        """`GET /admin/v1/deployments/{name}`."""
        self.actor(request)
        return await self._told(request.path_params["name"])

    async def changes(self, request: Request) -> Response:
        """`GET …/changes`: who changed what, the newest first."""
        self.actor(request)
        found = await asyncio.to_thread(self._control.changes, request.path_params["name"])
        return _json({"items": found})

    async def put_arm(self, request: Request) -> Response:
        """`PUT …/arms/{arm}`: known, without traffic."""
        actor, name, arm = self._of(request)
        body = await read(request, ArmBody)
        if body.engine not in self._engines.names:
            known = ", ".join(sorted(self._engines.names - {""})) or "only the primary"
            raise RequestError(f"no engine called {body.engine!r}", place="engine", cure=f"engines: {known}")

        def made() -> Steering:
            stable, _ = self._source.stable(name)
            if body.harness:
                reference, harness = self._source.resolve(body.harness, name)
                digest = harness_digest(harness)
            else:
                reference, digest = f"{name}@{stable.digest}", stable.digest
            try:
                plan = ArmPlan(name=arm, harness=reference, digest=digest, release=body.release, engine=body.engine)
            except ValidationError as error:
                raise RequestError(f"an arm's name looks like {NAME}", place="arm") from error
            return self._control.change(
                name, actor, "arm", body.model_dump() | {"arm": arm}, lambda now: steering.add(now, plan, stable.name)
            )

        await asyncio.to_thread(made)
        return await self._told(name)

    async def delete_arm(self, request: Request) -> Response:
        """`DELETE …/arms/{arm}`: forgotten; refused while it has traffic."""
        actor, name, arm = self._of(request)
        return await self._change(name, actor, "remove", {"arm": arm}, lambda now: steering.remove(now, arm))

    async def put_weights(self, request: Request) -> Response:
        """`PUT …/weights`."""
        actor, name, _ = self._of(request)
        body = await read(request, WeightsBody)
        return await self._change(name, actor, "weights", body.weights, lambda now: steering.weigh(now, body.weights))

    async def abort(self, request: Request) -> Response:
        """`POST …/arms/{arm}/abort`: everyone on it moves at the next message."""
        actor, name, arm = self._of(request)
        return await self._change(name, actor, "abort", {"arm": arm}, lambda now: steering.abort(now, arm))

    async def promote(self, request: Request) -> Response:
        """`POST …/arms/{arm}/promote`: it becomes the stable arm."""
        actor, name, arm = self._of(request)
        body = await read(request, PromoteBody)

        def made(now: Steering) -> Steering:
            stable, source = self._source.stable(name)
            return steering.promote(now, arm, as_former(stable), source, urgent=body.urgent)

        return await self._change(name, actor, "promote", {"arm": arm, "urgent": body.urgent}, made)

    async def put_override(self, request: Request) -> Response:
        """`PUT …/overrides`: one viewer always gets one arm."""
        actor, name, _ = self._of(request)
        body = await read(request, OverrideBody)
        unit = self._pseudonym(body.viewer)

        def made(now: Steering) -> Steering:
            return steering.pin_unit(now, unit, body.arm, self._source.stable(name)[0].name)

        return await self._change(name, actor, "override", {"unit": unit, "arm": body.arm}, made)

    async def mute(self, request: Request) -> Response:
        """`PUT` and `DELETE /admin/v1/rooms/{room}/mute`; room `*` is all rooms."""
        actor, room = self.actor(request), request.path_params["room"]
        known = room if room == "*" else self._pseudonym(room)
        changed = await asyncio.to_thread(self._control.mute, known, request.method == "PUT", actor)
        return _json({"muted": request.method == "PUT", "changed": changed})

    async def drain(self, request: Request) -> Response:
        """`POST /admin/v1/drain`: this replica takes no new turns; `DELETE` takes them again."""
        self.actor(request)
        self._drain(request.method == "POST")
        self._control.draining = request.method == "POST"
        await asyncio.to_thread(self._control.sync)
        return _json({"draining": request.method == "POST", "replica": self._control.id})

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _of(self, request: Request) -> tuple[str, str, str]:
        """(actor, deployment, arm)."""
        name = request.path_params["name"]
        return self.actor(request), name, request.path_params.get("arm", "")

    async def _change(
        self, name: str, actor: str, what: str, detail: Mapping[str, object], made: Callable[[Steering], Steering]
    ) -> Response:
        def run() -> None:
            self._source.deployment(name)
            self._control.change(name, actor, what, detail, made)

        await asyncio.to_thread(run)
        return await self._told(name)

    async def _told(self, name: str) -> Response:
        told = await asyncio.to_thread(self.view, name)
        up = {engine: await self._engines.healthy(engine) for engine in {arm["engine"] for arm in told["arms"]}}
        for arm in told["arms"]:
            arm["engine_up"] = up[arm["engine"]]
        return _json(told)

    def view(self, name: str) -> dict[str, Any]:
        """A deployment as it stands: arms, what is in force, who obeys, what was observed. Blocking."""
        deployment = self._source.deployment(name)
        now = self._control.steering(name) or Steering(name=name)
        replicas = self._control.replicas(name)
        with self._database.read() as tx:
            subject = records.rollout_subject(name, now.split)
            seen = records.units(tx, self._workspace, subject) if now.split else {}
            moved = records.moves(tx, self._workspace, name)
        return {
            "name": name,
            "revision": now.revision,
            "stable": deployment.control.name,
            "arms": _arms(deployment, now),
            "served": [{"name": arm.name, "harness": arm.digest} for arm in deployment.arms.values()],
            "effective": _effective(deployment, now, replicas),
            "waits_for": [one.id for one in replicas if one.alive and (one.revision != now.revision or one.trouble)],
            "trouble": "; ".join(sorted({one.trouble for one in replicas if one.alive and one.trouble})),
            "replicas": [
                {
                    "id": one.id,
                    "revision": one.revision,
                    "trouble": one.trouble,
                    "draining": one.draining,
                    "alive": one.alive,
                }
                for one in replicas
            ],
            "observed_units": seen,
            "moves": moved,
            "promoted": {"harness": now.pinned.digest, "release": now.pinned.release} if now.pinned else None,
            "former": [one.model_dump() for one in now.former],
            "overrides": len(now.overrides),
        }


def _arms(deployment: Deployment, now: Steering) -> list[dict[str, Any]]:
    stable = deployment.control
    rest = 100 - sum(arm.weight for arm in now.arms)
    told: list[dict[str, Any]] = [
        {
            "name": stable.name,
            "weight": rest,
            "harness": stable.digest,
            "release": stable.release,
            "engine": stable.engine,
            "aborted": False,
        }
    ]
    for arm in now.arms:
        told.append(
            {
                "name": arm.name,
                "weight": arm.weight,
                "harness": arm.digest,
                "release": arm.release,
                "engine": arm.engine,
                "aborted": arm.aborted,
            }
        )
    return told


def _effective(deployment: Deployment, now: Steering, replicas: list[ReplicaView]) -> dict[str, float] | None:
    """Arm → percent that every live replica obeys; None while one does not."""
    if any(one.alive and (one.revision != now.revision or one.trouble) for one in replicas):
        return None
    return {arm.name: arm.weight for arm in deployment.split.arms}


class ForbiddenError(RequestError):
    """The request has no admin token."""

    kind = "forbidden"


async def read(request: Request, model: type[Body], limit: int = 1024 * 1024) -> Body:
    """The body of an admin request; RequestError names the first field that is wrong."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RequestError(f"the body has more than {limit} bytes", place="body")
        parts.append(part)
    content = b"".join(parts) or b"{}"
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(first["msg"], place=".".join(map(str, first["loc"])) or "body") from None


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), headers={"Cache-Control": "no-store"}, media_type="application/json")
