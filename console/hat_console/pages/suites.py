"""Suites of recorded turns: a turn of a trace becomes an item that the evaluate step scores, and items can be taken out.

Always holds: whoever puts a turn into a suite says that it may be used for evaluation and for how many days; a turn is only
taken while one person at most can have spoken in it and is known, so that an erasure finds it; every change stands in the
ledger, without whose words it was. Not here: what an item is (hat_components.suites.recorded), retention and erasing
(hat_components.importer.erase).
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hat_components.data import KEEP_UNTIL, Dataset, expired, read_records
from hat_components.importer.conversation import Conversation
from hat_components.importer.scrub import of_unit
from hat_components.suites import recorded
from hat_components.suites.recorded import Call
from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.desk import root_of
from hat_console.pages.traces import Open
from hat_harness.errors import PlatformError
from hat_harness.render import tool_definitions
from hat_harness.trace import Trace
from hat_registry import ledger
from hat_registry.accounts import Actor
from hat_registry.errors import InvalidError, NotFoundError
from hat_registry.registry import Registry

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["suite"])
FOLDER = "suites"
"""Below the runs directory; one folder for each workspace in it."""
NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Name = Annotated[str, InPath(pattern=NAME, max_length=64)]
CALLS = TypeAdapter(list[Call])


class NewItem(BaseModel):
    """A recorded turn for a suite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str = Field(pattern=NAME, max_length=64)
    turn: int = Field(ge=1)
    purpose: Literal["evaluation"]
    """What the words may be used for; it has no default: whoever takes them says it."""
    keep_days: int = Field(default=90, ge=1, le=3650)
    """Days until the whole suite is refused; the shortest that any of its items was given counts."""
    calls: list[Call] | None = Field(default=None, max_length=50)
    """The calls that are right, in the names that the model read; None: those that were made."""


class Taken(BaseModel):
    """An item that goes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str = Field(min_length=1, max_length=512)


# ---- resources ------------------------------------------------------------------------------------------------


@api.get("/suites")
def list_suites(request: Request, actor: CurrentActor) -> dict[str, Any]:
    """Suites of recorded turns, by name."""
    actor.require("traces")
    return {"items": [_told(name, manifest) for name, manifest in recorded.listing(_root(request, actor))]}


@api.get("/suites/{name}")
def get_suite(request: Request, name: Name, actor: CurrentActor) -> dict[str, Any]:
    """One suite with its items: what was asked, and which calls are right."""
    actor.require("traces")
    folder = _root(request, actor) / name
    manifest = dict(recorded.listing(folder.parent)).get(name)
    if manifest is None:
        raise NotFoundError(f"no suite {name}", place="suites", cure="add a turn from the page of a trace")
    rows = [] if expired(manifest) else [_item(one) for one in read_records(folder, Conversation)]
    return {**_told(name, manifest), "rows": rows}


@api.post("/traces/{ident:path}/suite", status_code=201)
def add_item(
    request: Request, held: Open, body: NewItem, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Put a turn of the trace into a suite, which is made with its first item."""
    trace, where = held.trace, held.where
    folder = _root(request, actor) / body.suite
    if where.run:
        ident, viewer = f"{where.run}/{where.step}/{held.ident}", ""
    else:
        ident, viewer = held.ident, of_unit(_speaker(trace, body.turn, str(held.known["unit"])))
    item = recorded.item_of(
        trace, body.turn, ident=ident, viewer=viewer, tools=_tools(registry, actor, trace), calls=body.calls
    )
    manifest = recorded.add(folder, item, keep_days=body.keep_days)
    _write_down(registry, actor, body.suite, "add", manifest)
    return {**_told(body.suite, manifest), "item": item.id}


@api.post("/suites/{name}/remove")
def remove_item(
    request: Request, name: Name, body: Taken, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Take an item out; with its last item a suite is gone."""
    actor.require("traces")
    manifest = recorded.remove(_root(request, actor) / name, body.item)
    _write_down(registry, actor, name, "remove", manifest)
    return {"suite": name, "items": manifest.count if manifest else 0, "changed": True}


# ---- pages ----------------------------------------------------------------------------------------------------


@router.get("/suites")
def listing(request: Request, view: Page, actor: CurrentActor) -> Response:
    """All suites."""
    return view.page(request, "suites.html", list_suites(request, actor))


@router.get("/suites/{name}")
def one(request: Request, name: Name, view: Page, actor: CurrentActor) -> Response:
    """One suite."""
    folder = _root(request, actor).name
    return view.page(request, "suite.html", get_suite(request, name, actor), folder=folder)


@router.post("/traces/{ident:path}/suite")
def add(request: Request, form: Form, held: Open, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """From the page of a trace; empty calls mean those that were made."""
    try:
        calls = CALLS.validate_json(form["calls"]) if form.get("calls", "").strip() else None
        body = NewItem.model_validate(
            {"calls": calls, **{key: form[key] for key in ("suite", "turn", "purpose", "keep_days") if key in form}}
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "calls"
        cure = 'calls are a list: [{"name": "get_item", "arguments": {"item": "mug"}}]' if place == "calls" else ""
        raise InvalidError(first["msg"], place=place, cure=cure) from None
    made = add_item(request, held, body, actor, registry)
    return RedirectResponse(f"/suites/{made['name']}", 303)


@router.post("/suites/{name}/remove")
def remove(request: Request, name: Name, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """From the page of a suite."""
    left = remove_item(request, name, Taken(item=form.get("item", "")[:512] or "-"), actor, registry)
    return RedirectResponse(f"/suites/{name}" if left["items"] else "/suites", 303)


# ---- helpers --------------------------------------------------------------------------------------------------


def _root(request: Request, actor: Actor) -> Path:
    """The folder of the actor's workspace, whatever signs its name has."""
    plain = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", actor.workspace)
    name = actor.workspace if plain else "ws." + sha256(actor.workspace.encode()).hexdigest()[:32]
    return root_of(request) / FOLDER / name


def _speaker(trace: Trace, turn: int, unit: str) -> str:
    """The one person whose words stand in the item; InvalidError where it is several, or nobody knows who."""
    asked = [entry for entry in trace.entries if entry.type == "ViewerMessage" and entry.turn <= turn]
    people = {str(one) for entry in asked for one in entry.data.get("viewers", ())} or {unit}
    if len(people) > 1:
        raise InvalidError(
            "several viewers speak in this conversation, so an erasure of one could not find the item",
            place=f"turn {turn}",
            cure="take a turn of a conversation with one viewer",
        )
    (person,) = people
    if not of_unit(person):
        raise InvalidError(
            "who spoke here is not known any more, so an erasure could not find the item",
            place=f"turn {turn}",
            cure="take a turn while the gateway still has its conversation",
        )
    return person


def _tools(registry: Registry, actor: Actor, trace: Trace) -> tuple[dict[str, Any], ...]:
    """Definitions of the harness's tools, for contexts that have them in the prompt; () where it is not registered."""
    if any(segment.tools for segment in trace.segments):
        return ()
    try:
        _, harness = registry.load(actor.workspace, trace.harness_name, trace.harness)
    except PlatformError:
        return ()
    layout = harness.layout.model_copy(update={"tools": "schema"})
    return tool_definitions(harness.model_copy(update={"layout": layout}))


def _told(name: str, manifest: Dataset) -> dict[str, Any]:
    return {
        "name": name,
        "items": manifest.count,
        "digest": manifest.digest,
        "purpose": manifest.purpose,
        "until": manifest.facts[KEEP_UNTIL],
        "expired": expired(manifest),
    }


def _item(one: Conversation) -> dict[str, Any]:
    asked = [message["content"] for message in one.messages if message["role"] == "user"]
    calls = [call["function"] for message in one.messages for call in message.get("tool_calls") or ()]
    told = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls]
    return {"id": one.id, "asked": asked[-1] if asked else "", "calls": told}


def _write_down(registry: Registry, actor: Actor, name: str, what: str, manifest: Dataset | None) -> None:
    """A row of the ledger: which suite, how many items, by whom."""
    data = {"asked": what, "items": manifest.count if manifest else 0, "digest": manifest.digest if manifest else ""}
    with registry.database.write() as tx:
        ledger.append(tx, actor.workspace, actor.account, "suite", f"suite:{name}", data)
