"""Pipelines: what there is, a form that starts a run, the queue, schedules.

Always holds: the form and the API take the same order and check it by the same code; nothing starts from a GET.
Not here: runs that have started (runs), what an order is (hat_pipelines.desk).
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_console.pages import CurrentActor, Form, Page
from hat_console.pages.desk import CurrentDesk, WideForm, check_own, ordered_json
from hat_console.pages.graph import graph
from hat_harness.errors import PlatformError
from hat_pipelines import dags
from hat_pipelines.desk import form as forms
from hat_pipelines.desk import look, released
from hat_pipelines.desk.desk import Desk
from hat_pipelines.desk.order import Budget, Order
from hat_pipelines.desk.store import Scheduled
from hat_pipelines.errors import ProfileError, RunConflictError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["pipeline"])
INPUT = "i:"
"""Prefix of form fields that are inputs of the pipeline."""
VALUE = "v:"
"""Prefix of form fields that are values of the profile."""


class ScheduleBody(BaseModel):
    """A schedule: when, and what is ordered each time."""

    model_config = ConfigDict(extra="forbid")

    cron: str = Field(max_length=128)
    order: Order


# ---- resources ------------------------------------------------------------------------------------------------


@api.get("/pipelines")
def list_pipelines(actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Pipelines with their steps, profiles, the queue, schedules."""
    actor.require("read")
    catalogue = desk.catalogue
    queue = [one for one in desk.store.active() if one.workspace == actor.workspace]
    waiting = [one for one in queue if one.state == "queued"]
    return {
        "items": [_pipeline(desk, name) for name in catalogue.pipeline_names()],
        "profiles": list(catalogue.profile_names()),
        "limit": desk.settings.limit,
        "queue": [ordered_json(one, waiting.index(one) + 1 if one in waiting else None) for one in queue],
        "schedules": [_schedule(one) for one in desk.store.schedules(actor.workspace)],
    }


@api.get("/pipelines/{name}/form")
def get_form(
    request: Request, name: str, actor: CurrentActor, desk: CurrentDesk, profile: str = "smoke", clone: str = ""
) -> dict[str, Any]:
    """The inputs of a pipeline; with `clone`, the values of that run."""
    actor.require("read")
    order = Order(pipeline=name, profile=profile)
    if clone:
        before = check_own(request, actor, clone)
        if before is not None:
            order = before.order.model_copy(update={"name": "", "cloned": clone, "resume": "", "from_step": ""})
        else:
            order = _read_back(desk, clone)
    return _form(desk, actor.workspace, order)


@api.post("/runs", status_code=201)
def start_run(body: Order, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Order a run: it is queued and starts when there is room."""
    actor.require("run")
    return ordered_json(desk.place(actor.workspace, actor.account, body))


@api.put("/schedules/{name}")
def put_schedule(name: str, body: ScheduleBody, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Make or replace a schedule."""
    actor.require("run")
    return _schedule(desk.put_schedule(actor.workspace, actor.account, name[:64], body.cron, body.order))


@api.delete("/schedules/{name}")
def delete_schedule(name: str, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Take a schedule away."""
    actor.require("run")
    desk.store.remove(actor.workspace, name)
    return {"schedule": name, "changed": True}


# ---- pages ----------------------------------------------------------------------------------------------------


@router.get("/pipelines")
def listing(request: Request, view: Page, actor: CurrentActor, desk: CurrentDesk) -> Response:
    """All pipelines, the queue and the schedules."""
    body = list_pipelines(actor, desk)
    drawn = {one["name"]: graph(one["name"], one["graph"], {}, {"waiting": ""}, "") for one in body["items"]}
    return view.page(request, "pipelines.html", body, drawn=drawn)


@router.get("/pipelines/{name}/new")
def new(
    request: Request,
    name: str,
    view: Page,
    actor: CurrentActor,
    desk: CurrentDesk,
    profile: str = "smoke",
    clone: str = "",
) -> Response:
    """The form."""
    body = get_form(request, name, actor, desk, profile, clone)
    return view.page(request, "run_new.html", body, shown=_shown, texts={}, problems={}, others=[], cron="")


@router.post("/pipelines/{name}/new")
def start(request: Request, name: str, view: Page, actor: CurrentActor, desk: CurrentDesk, form: WideForm) -> Response:
    """Start a run or keep a schedule; the form again, with what is wrong beside each field, when it cannot be."""
    actor.require("run")
    texts = {key.removeprefix(VALUE): value for key, value in form.items() if key.startswith(VALUE)}
    order = Order(pipeline=name, profile=form.get("profile", "smoke"))
    found = _sections(desk, order)
    values, problems = forms.read(found, texts)
    others: list[str] = []
    cron = form.get("cron", "").strip()
    try:
        order = _order(name, form, values)
        if not problems and cron:
            desk.put_schedule(
                actor.workspace, actor.account, form.get("schedule", "")[:64] or order.profile, cron, order
            )
            return RedirectResponse("/pipelines#schedules", 303)
        if not problems:
            return RedirectResponse(f"/runs/{desk.place(actor.workspace, actor.account, order).run}", 303)
    except ProfileError as error:
        problems, others = forms.blame(found, error.problems)
    except ValidationError as error:
        others = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
    except PlatformError as error:
        others = [f"{error.message}. {error.cure}"]
    body = _form(desk, actor.workspace, Order(pipeline=name, profile=order.profile)) | {
        "order": order.model_dump(mode="json")
    }
    return view.page(
        request,
        "run_new.html",
        body,
        status=422,
        shown=_shown,
        texts=texts,
        problems=problems,
        others=others,
        cron=cron,
    )


@router.post("/pipelines/schedules/{name}")
def change_schedule(name: str, actor: CurrentActor, desk: CurrentDesk, form: Form) -> Response:
    """Switch a schedule on or off, or remove it."""
    actor.require("run")
    if form.get("do") == "remove":
        desk.store.remove(actor.workspace, name)
    else:
        desk.switch(actor.workspace, name, form.get("do") == "on")
    return RedirectResponse("/pipelines#schedules", 303)


# ---- shapes ---------------------------------------------------------------------------------------------------


def _pipeline(desk: Desk, name: str) -> dict[str, Any]:
    try:
        dag = dags.build(name, ("naive", "hsa")).expand()
    except PlatformError as error:
        told = {"kind": error.kind, "message": error.message, "place": error.place, "cure": error.cure}
        return {"name": name, "description": "", "steps": [], "graph": [], "fault": told}
    nodes = [
        {"name": node.name, "column": node.column, "row": node.row, "needs": list(node.needs)}
        for node in look.layout(dag)
    ]
    steps = [step.name for step in dag.steps]
    return {"name": name, "description": dag.description, "steps": steps, "graph": nodes, "fault": None}


def _sections(desk: Desk, order: Order) -> list[forms.Section]:
    profile, dag = desk.catalogue.profile(order.model_copy(update={"values": {}}))
    return forms.sections(profile, dag)


def _form(desk: Desk, workspace: str, order: Order) -> dict[str, Any]:
    found = _sections(desk, order)
    profile, dag = desk.catalogue.profile(order.model_copy(update={"values": {}}))
    root = desk.settings.root
    needed = {name: list(desk.catalogue.choices(name, root))[:100] for name in dag.inputs if name != "harness"}
    if released.MODEL in needed:
        needed[released.MODEL] = [*desk.released(workspace), *needed[released.MODEL]]
    targets = ["local", *(name for name in ("argo", "kfp") if desk.settings.remote.get(name))]
    return {
        "pipeline": order.pipeline,
        "order": order.model_dump(mode="json"),
        "profiles": list(desk.catalogue.profile_names()),
        "harnesses": list(desk.catalogue.harness_names()),
        "harness": order.harness or profile.harness,
        "targets": targets,
        "inputs": needed,
        "about": profile.description,
        "sections": forms.as_json(found),
    }


def _order(pipeline: str, form: dict[str, str], values: dict[str, Any]) -> Order:
    """The order that a posted form means; a pasted order in JSON is laid under the fields that were changed."""
    pasted = form.get("json", "").strip()
    base: dict[str, Any] = {}
    if pasted:
        try:
            base = json.loads(pasted)
        except ValueError:
            raise ProfileError("order", [_problem("the pasted text is not JSON")]) from None
        if not isinstance(base, dict):
            raise ProfileError("order", [_problem("the pasted JSON is no object")])
        if "values" not in base and "profile" not in base:
            base = {"values": base}
    tokens, seconds = form.get("budget_tokens", "").strip(), form.get("budget_gpu_seconds", "").strip()
    budget = Budget.model_validate({"tokens": tokens or None, "gpu_seconds": seconds or None}, strict=False)
    return Order.model_validate(
        {
            **base,
            "pipeline": pipeline,
            "profile": form.get("profile", "smoke"),
            "harness": form.get("harness", ""),
            "name": form.get("name", "").strip(),
            "target": form.get("target", "local"),
            "cache": form.get("cache") == "yes",
            "cloned": form.get("cloned", ""),
            "inputs": {
                key.removeprefix(INPUT): value for key, value in form.items() if key.startswith(INPUT) and value
            },
            "budget": budget,
            "values": {**base.get("values", {}), **values},
        }
    )


def _problem(message: str) -> Any:
    from hat_harness.errors import Problem

    return Problem("json", 0, message)


def _read_back(desk: Desk, run: str) -> Order:
    """An order that gives the values of a run that was started from the command line."""
    folder = look.find(desk.settings.root, run)
    then = look.profile_of(folder)
    if then is None:
        raise RunConflictError(f"the profile of {run} is no longer understood", place=run, cure="start from a profile")
    order = Order(pipeline=then.pipeline, profile=folder.record.profile, cloned=run)
    found = _sections(desk, order)
    data = then.model_dump(mode="json")
    values: dict[str, Any] = {}
    for one in (one for section in found for one in section.fields):
        value: Any = data
        keys = one.key.split(".")
        if keys[0] == "steps" and keys[1] not in data["steps"]:
            keys[1] = next((step for step in data["steps"] if step.startswith(f"{keys[1]}-")), keys[1])
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value != one.default:
            values[one.key] = value
    return order.model_copy(update={"values": values, "harness": then.harness})


def _shown(one: dict[str, Any], values: dict[str, Any]) -> str:
    """What a field shows: the order's value, else the profile's."""
    value = values.get(one["key"], one["default"])
    if value is None:
        return ""
    if one["kind"] in ("json", "boolean"):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _schedule(one: Scheduled) -> dict[str, Any]:
    return {
        "name": one.name,
        "cron": one.cron,
        "enabled": one.enabled,
        "next": one.due() if one.enabled else None,
        "order": one.order.model_dump(mode="json"),
        "created_by": one.created_by,
        "created_at": one.created_at,
        "fired": one.fired,
        "skipped": one.skipped,
        "note": one.note,
    }
