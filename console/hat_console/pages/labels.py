"""Labelling: projects, one task at a time from the keyboard, agreement, adjudication, JSONL both ways.

Always holds: what goes to a rater's browser names no arm and holds nothing hidden; sides are those of the asking account.
Not here: what is kept (hat_components.label), what a label is worth (judge).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from hat_components.label.exchange import export, first_record, import_labels, read_tasks, split_lines
from hat_components.label.model import FORMAT, PREFERENCE, SIDES, Project, Task
from hat_components.label.store import LabelStore, Progress, disputes, flipped
from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry.errors import InvalidError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["label"])
MOST_DISPUTED = 100
Lines = Annotated[str, Body(media_type="application/x-ndjson")]


class Said(BaseModel):
    """Body of a rating."""

    model_config = ConfigDict(extra="forbid")
    item: str
    labels: dict[str, str]
    cause: str = ""
    comment: str = Field(default="", max_length=4000)


def store_of(request: Request, registry: CurrentRegistry) -> LabelStore:
    """The label store over the registry's database, made at its first use."""
    state = request.app.state
    if not hasattr(state, "labels"):
        state.labels = LabelStore(registry.database)
    found: LabelStore = state.labels
    return found


# ---- resources ------------------------------------------------------------------------------------------------


@api.get("/labels")
def list_projects(request: Request, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Projects with their progress."""
    found = store_of(request, registry).projects(actor)
    return {"items": [{**_project(project), "progress": _progress(progress)} for project, progress in found]}


@api.post("/labels", status_code=201)
def add_lines(request: Request, body: Lines, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """A project with its tasks, as JSONL."""
    actor.require("label")
    project, tasks = read_tasks(split_lines(body))
    store_of(request, registry).create(actor, project, tasks)
    return {"project": project.name, "items": len(tasks)}


@api.post("/labels/{name}/ratings", status_code=201)
def add_ratings(
    request: Request, name: str, body: Lines, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Ratings from elsewhere, as JSONL: all or none."""
    actor.require("label")
    return {"ratings": import_labels(store_of(request, registry), actor, name, split_lines(body))}


@api.get("/labels/{name}/ratings")
def get_ratings(
    request: Request, name: str, actor: CurrentActor, registry: CurrentRegistry, final: bool = False
) -> PlainTextResponse:
    """Ratings by pseudonym, or settled labels, as JSONL."""
    lines = export(store_of(request, registry), actor, name, final=final)
    return PlainTextResponse("".join(f"{line}\n" for line in lines), media_type="application/x-ndjson")


@api.get("/labels/{name}/task")
def get_task(
    request: Request,
    name: str,
    actor: CurrentActor,
    registry: CurrentRegistry,
    item: str = "",
    after: str = "",
    back: bool = False,
) -> dict[str, Any]:
    """The task that comes next, one by id, or the neighbour of `after`; `task` is null when nothing is left."""
    store = store_of(request, registry)
    project = store.project(actor, name)
    task = store.task(actor, name, item) if item else store.next(actor, name, after=after, back=back)
    return {
        "project": _project(project),
        "progress": _progress(store.progress(actor, name)),
        "task": None if task is None else _task(project, task, actor.account),
        "mine": {} if task is None else _mine(store, actor, project, task),
    }


@api.put("/labels/{name}/rating")
def put_rating(
    request: Request, name: str, body: Said, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Rate one item; pairs by side: first, tie, second."""
    store = store_of(request, registry)
    store.rate(actor, name, body.item, body.labels, cause=body.cause, comment=body.comment)
    return {"progress": _progress(store.progress(actor, name))}


@api.get("/labels/{name}")
def get_results(request: Request, name: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Agreement by criterion, what raters disagree on, and for pairs who wins. It names the arms: for after rating."""
    from hat_components.label.preference import agreement, preference

    store = store_of(request, registry)
    project = store.project(actor, name)
    ratings, decisions = store.ratings(actor, name), store.decisions(actor, name)
    decided = {(one.item, one.criterion): one.label for one in decisions}
    votes = disputes(ratings)
    found = {
        "project": {**_project(project), "arms": list(project.arms)},
        "progress": _progress(store.progress(actor, name)),
        "agreement": {
            one.name: agreement(project, ratings, one.name).model_dump(mode="json") for one in project.criteria
        },
        "disputed": [
            {"item": item, "criterion": criterion, "votes": dict(sorted(counted.items())),
             "decision": decided.get((item, criterion), "")}
            for (item, criterion), counted in sorted(votes.items())
        ][:MOST_DISPUTED],
    }  # fmt: skip
    if project.kind == "pair":
        made = preference(project, store.tasks(actor, name), ratings, decisions)
        found["preference"] = made.model_dump(mode="json")
    return found


# ---- pages ----------------------------------------------------------------------------------------------------


@router.get("/label")
def listing(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """All projects, and where new ones come in."""
    return view.page(request, "label.html", list_projects(request, actor, registry))


@router.post("/label")
def bring(request: Request, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """A pasted project, or pasted ratings of one."""
    actor.require("label")
    text = form.get("lines", "")
    if first_record(text).get("format") == FORMAT:
        name = str(add_lines(request, text, actor, registry)["project"])
        return RedirectResponse(f"/label/{name}", 303)
    name = form.get("project", "")
    if not name:
        raise InvalidError("the first line is no project", cure="name the project that these ratings belong to")
    add_ratings(request, name, text, actor, registry)
    return RedirectResponse(f"/label/{name}/results", 303)


@router.get("/label/{name}")
def task_page(
    request: Request,
    name: str,
    view: Page,
    actor: CurrentActor,
    registry: CurrentRegistry,
    item: str = "",
    after: str = "",
    back: Annotated[bool, Query()] = False,
) -> Response:
    """One task at a time."""
    return view.page(request, "task.html", get_task(request, name, actor, registry, item, after, back))


@router.post("/label/{name}")
def rate(request: Request, name: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Keep a rating and go on to the next task."""
    actor.require("label")
    labels = {key.removeprefix("label:"): value for key, value in form.items() if key.startswith("label:")}
    if not labels:
        raise InvalidError("nothing was chosen", cure="press a number, or choose with the mouse")
    store_of(request, registry).rate(
        actor, name, form.get("item", ""), labels, cause=form.get("cause", ""), comment=form.get("comment", "")
    )
    return RedirectResponse(f"/label/{name}", 303)


@router.get("/label/{name}/results")
def results(request: Request, name: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Agreement, disputes and preference."""
    return view.page(request, "labelled.html", get_results(request, name, actor, registry))


@router.post("/label/{name}/decide")
def decide(request: Request, name: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Settle one item that raters disagree on."""
    store_of(request, registry).decide(
        actor, name, form.get("item", ""), form.get("criterion", ""), form.get("label", ""),
        cause=form.get("cause", ""), reason=form.get("reason", ""),
    )  # fmt: skip
    return RedirectResponse(f"/label/{name}/results", 303)


# ---- shapes ---------------------------------------------------------------------------------------------------


def _project(project: Project) -> dict[str, Any]:
    """A project without what raters must not know."""
    return {
        "name": project.name,
        "kind": project.kind,
        "note": project.note,
        "criteria": [one.model_dump(mode="json") for one in project.criteria],
        "causes": list(project.causes),
        "ratings_per_item": project.ratings_per_item,
    }


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "items": progress.items,
        "mine": progress.mine,
        "ratings": {str(count): items for count, items in progress.ratings.items()},
        "disputed": progress.disputed,
        "decided": progress.decided,
    }


def _task(project: Project, task: Task, account: str) -> dict[str, Any]:
    """What is shown of a task; replies of a pair stand by side, not by arm."""
    shown = dict(task.shown)
    found: dict[str, Any] = {
        "id": task.id,
        "before": shown.get("before", []),
        "event": shown.get("event", ""),
        "calls": [],
    }
    if project.kind == "single":
        replies = [("reply", "reply")]
        found["calls"] = shown.get("calls", [])
    else:
        sides = ("b", "a") if flipped(project, account, task.id) else ("a", "b")
        replies = [("first", sides[0]), ("second", sides[1])]
    found["replies"] = [
        {"side": side, "text": shown.get(key, ""), "outcome": shown.get(f"{key}_outcome", "")} for side, key in replies
    ]
    return found


def _mine(store: LabelStore, actor: CurrentActor, project: Project, task: Task) -> dict[str, Any]:
    """What the rater said before, pairs by side."""
    said = store.mine(actor, project.name, task.id)
    labels = {criterion: one.label for criterion, one in said.items()}
    if project.kind == "pair" and PREFERENCE in labels:
        order = SIDES[::-1] if flipped(project, actor.account, task.id) else SIDES
        labels[PREFERENCE] = order[("a", "tie", "b").index(labels[PREFERENCE])]
    cause = next((one.cause for one in said.values() if one.cause), "")
    return {"labels": labels, "cause": cause}
