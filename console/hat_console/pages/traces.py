"""Traces: conversations of the gateway and sessions of runs, found by their id, told turn by turn.

Always holds: a trace is shown only to whoever may read traces of its harness in its own workspace, and says so in no other
way than "there is none"; what retention or an erasure took is not found. Not here: how a trace is told (told), keeping
(hat_serving.gateway), making (hat_components).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError

from hat_components.evaluate.result import TraceRecord
from hat_console import replayed
from hat_console.pages import CurrentActor, CurrentRegistry, Page
from hat_console.pages.desk import check_own, root_of
from hat_console.pages.experiments import Known
from hat_console.shelf import shelf_of
from hat_console.told import told
from hat_console.view import wants_json
from hat_harness.trace import Trace
from hat_pipelines.desk import look
from hat_pipelines.errors import PipelineError
from hat_registry.accounts import Actor
from hat_registry.errors import NotFoundError
from hat_serving.gateway.client import GatewayClient, GatewayError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["trace"])
TURNS = 10
"""Turns of one page."""
LISTED = 50
ITEMS = 200
_HEAD = re.compile(rb'\{"suite":("(?:[^"\\]|\\.)*"),"item":("(?:[^"\\]|\\.)*"),"state":(\d+)')


class Where(BaseModel):
    """Which run's file a session stands in; nothing: the gateway's."""

    model_config = ConfigDict(frozen=True)

    run: str = ""
    step: str = ""
    suite: str = ""
    state: int = 0


def where_of(
    run: str = Query("", max_length=128),
    step: str = Query("", max_length=128),
    suite: str = Query("", max_length=128),
    state: int = Query(0, ge=0, le=10_000),
) -> Where:
    """From the query."""
    return Where(run=run, step=step, suite=suite, state=state)


Place = Annotated[Where, Depends(where_of)]


class Filters(BaseModel):
    """Which of the gateway's conversations are listed."""

    model_config = ConfigDict(frozen=True)

    arm: str = ""
    release: str = ""
    harness: str = ""
    before: str = ""
    """The last one of the page before."""


def filters_of(
    arm: str = Query("", max_length=64),
    release: str = Query("", max_length=71),
    harness: str = Query("", max_length=71),
    before: str = Query("", max_length=300),
) -> Filters:
    """From the query."""
    return Filters(arm=arm, release=release, harness=harness, before=before)


Asked = Annotated[Filters, Depends(filters_of)]
Upto = Annotated[int, Query(ge=0, le=1_000_000, description="the last turn that is told; 0: the newest")]


@dataclass(frozen=True, slots=True)
class Opened:
    """A trace that the actor may read."""

    ident: str
    where: Where
    known: dict[str, Any]
    """What its keeper says beside it: source, arm, release, or suite and state."""
    trace: Trace

    @property
    def page(self) -> str:
        """Its page."""
        return address(self.ident, self.where.run, self.where.step, self.where.suite, self.where.state)


def opened(request: Request, ident: str, actor: CurrentActor, gateway: Known, where: Place) -> Opened:
    """The trace of a path; NotFoundError where the actor may not read traces of its harness."""
    actor.require_some("traces")
    found = _of_run(request, actor, ident, where) if where.run else _of_gateway(gateway, ident)
    trace: Trace = found.pop("trace")
    if not actor.may("traces", trace.harness_name):
        raise _none(ident)
    return Opened(ident, where, found, trace)


Open = Annotated[Opened, Depends(opened)]


# ---- resources ------------------------------------------------------------------------------------------------


@api.get("/traces")
def list_traces(request: Request, actor: CurrentActor, gateway: Known, where: Place, asked: Asked) -> dict[str, Any]:
    """Conversations of the gateway, the last touched first; with `run` (and `step`) the sessions that a run kept."""
    actor.require_some("traces")
    if where.run:
        actor.require("traces")
        items = [
            {"suite": suite, "item": item, "state": state, "url": address(item, where.run, where.step, suite, state)}
            for suite, item, state in _heads(_files(request, actor, where))
            if where.suite in ("", suite)
        ]
        told = {"run": where.run, "step": where.step, "suite": where.suite}
        return {**told, "items": items[:ITEMS], "total": len(items), "connected": True, "next": ""}
    none: dict[str, Any] = {"run": "", "step": "", "suite": "", "items": [], "total": 0, "next": ""}
    if gateway is None:
        return {**none, "connected": False}
    actor.require("traces")  # a conversation's harness is only known by its digest here
    query = {**asked.model_dump(), "limit": str(LISTED)}
    found = gateway.get("/conversations?" + "&".join(f"{key}={quote(one)}" for key, one in query.items() if one))
    items = [{key: one[key] for key in one if key != "at"} | {"url": address(one["id"])} for one in found["items"]]
    following = found["items"][-1]["at"] if len(items) == LISTED else ""
    return {**none, "items": items, "total": len(items), "connected": True, "next": following}


@api.get("/traces/{ident:path}")
def get_trace(
    held: Open,
    upto: Upto = 0,
    whole: Annotated[bool, Query(description="the trace itself (hatstack.trace/1)")] = False,
) -> dict[str, Any]:
    """One trace: its turns with replies, reasoning, tools, hooks and times, the harness lines that were quoted, its arm."""
    if whole:
        return held.trace.model_dump(mode="json")
    shape = told(held.trace, upto=upto, most=TURNS)
    served = {row["number"]: row for row in held.known.get("served", ())}
    for turn in shape["turns"]:
        turn["served"] = served.get(turn["index"])
    known = {key: value for key, value in held.known.items() if key not in ("served", "unit")}
    return {"id": held.ident, **known, **shape}


# ---- pages ----------------------------------------------------------------------------------------------------


@router.get("/traces")
def listing(
    request: Request,
    view: Page,
    actor: CurrentActor,
    gateway: Known,
    where: Place,
    asked: Asked,
) -> Response:
    """The newest conversations, or a run's sessions."""
    body = list_traces(request, actor, gateway, where, asked)
    return view.page(request, "traces.html", body, asked=asked.model_dump(exclude={"before"}))


@router.get("/traces/{ident:path}")
def one(
    request: Request,
    held: Open,
    view: Page,
    actor: CurrentActor,
    gateway: Known,
    registry: CurrentRegistry,
    upto: Upto = 0,
) -> Response:
    """One trace."""
    body = get_trace(held, upto, whole=False)
    here, query, more = held.page, held.page.partition("?")[2], "&" if "?" in held.page else "?"
    bare = here.partition("?")[0]
    links = {what: f"{bare}/{what}" + (f"?{query}" if query else "") for what in ("replay", "suite")}
    offered: dict[str, Any] = (
        {} if wants_json(request) else replayed.offers(actor, registry, gateway, body["harness_name"])
    )
    connected = gateway is not None
    return view.page(request, "trace.html", body, here=here, more=more, links=links, connected=connected, **offered)


def address(ident: str, run: str = "", step: str = "", suite: str = "", state: int = 0) -> str:
    """The page of a trace."""
    asked = {"run": run, "step": step, "suite": suite, "state": str(state or "")} if run else {}
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in asked.items() if value)
    return f"/traces/{quote(ident, safe='')}" + (f"?{query}" if query else "")


# ---- where traces are -----------------------------------------------------------------------------------------


def _of_gateway(gateway: GatewayClient | None, ident: str) -> dict[str, Any]:
    if gateway is None:
        raise _none(ident)
    try:
        found: dict[str, Any] = gateway.get(f"/conversations/{quote(ident, safe='')}")
    except GatewayError as error:
        if error.kind == "invalid_input":
            raise _none(ident) from None
        raise
    kept = {key: found[key] for key in ("source", "arm", "release", "updated_at", "served")}
    kept["unit"] = found.get("unit", "")  # a gateway of the release before does not tell
    return {**kept, "now": found["harness"], "run": "", "step": "", "trace": Trace.model_validate(found["trace"])}


def _of_run(request: Request, actor: Actor, ident: str, where: Where) -> dict[str, Any]:
    for line in _lines(_files(request, actor, where)):
        head = _head(line)
        if head is None or where.suite not in ("", head[0]) or where.state != head[2]:
            continue
        if head[1] != ident:
            continue
        try:
            record = TraceRecord.model_validate_json(line)
        except ValidationError:
            continue
        told = {"suite": record.suite, "item": record.item, "state": record.state, "families": list(record.families)}
        return {"source": "run", "run": where.run, "step": where.step, **told, "trace": record.trace}
    raise _none(ident)


def _files(request: Request, actor: Actor, where: Where) -> list[Path]:
    """The trace files of an evaluation, or of a run's step."""
    for one in shelf_of(request, actor).listing():
        if one["run"] == where.run and one["step"] == where.step:
            return [Path(one["file"]).with_name("traces.jsonl")]
    check_own(request, actor, where.run)
    try:
        folder = look.find(root_of(request), where.run)
    except PipelineError:
        raise _none(where.run) from None
    steps = [where.step] if where.step else list(folder.record.steps)
    found = [folder.step(step).artifact("traces") for step in steps if step in folder.record.steps]
    paths = [path for path in found if path is not None]
    return [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]


def _lines(files: list[Path]) -> Iterator[bytes]:
    for file in files:
        if file.is_file():
            with file.open("rb") as lines:
                yield from lines


def _heads(files: list[Path]) -> Iterator[tuple[str, str, int]]:
    return (head for head in map(_head, _lines(files)) if head is not None)


def _head(line: bytes) -> tuple[str, str, int] | None:
    """(suite, item, state) of a line, without reading the trace in it."""
    found = _HEAD.match(line)
    try:
        return (json.loads(found[1]), json.loads(found[2]), int(found[3])) if found else None
    except ValueError:  # a line that a kill or a disk broke
        return None


def _none(ident: str) -> NotFoundError:
    return NotFoundError(
        f"no trace {ident[:80]!r}", place="traces", cure="it was erased, is past its day, or never was"
    )
