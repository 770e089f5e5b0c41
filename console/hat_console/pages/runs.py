"""Runs: the list, one of them while it goes and afterwards, its logs as they are written, two of them compared.

Always holds: reading needs the permission `read`, conversations and reports `traces`, every change `run`; a log is sent
in whole lines, and a stream that breaks goes on where it stopped. Not here: starting (pipelines), records (hat_pipelines).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict

from hat_components.report import svg
from hat_console.messages import preferred, translator
from hat_console.pages import CurrentActor, Form, Page
from hat_console.pages.desk import DEFAULT, CurrentDesk, CurrentRoot, check_own, ordered_json
from hat_console.pages.graph import SIGNS, graph
from hat_pipelines.desk import compare as comparisons
from hat_pipelines.desk import look
from hat_pipelines.desk.desk import Desk
from hat_pipelines.desk.order import Order
from hat_pipelines.desk.store import ACTIVE, Ordered
from hat_pipelines.errors import RunConflictError
from hat_registry.errors import ConflictError, NotFoundError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["run"])
LOOK_S = 0.2
"""How often a stream looks at its file."""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox allow-popups"
STATES = (*SIGNS, "queued", "partial", "cancelled", "over_budget")
PAGE = 200


class Resume(BaseModel):
    """How to go on with a run."""

    model_config = ConfigDict(extra="forbid")

    from_step: str = ""


# ---- resources ------------------------------------------------------------------------------------------------


@api.get("/runs")
def list_runs(
    request: Request,
    actor: CurrentActor,
    root: CurrentRoot,
    state: str = "",
    pipeline: str = "",
    limit: int = Query(PAGE, ge=1, le=1000),
) -> dict[str, Any]:
    """Runs, the newest first, those that still wait before them."""
    actor.require("read")
    desk: Desk | None = getattr(request.app.state, "desk", None)
    owners = desk.store.workspaces() if desk else {}
    orders = {one.run: one for one in reversed(desk.store.orders(actor.workspace))} if desk else {}
    records = [one for one in look.records(root) if owners.get(one.id, DEFAULT) == actor.workspace]
    known = {one.id for one in records}
    rows = [_queued(one) for run, one in orders.items() if run not in known]
    rows.sort(key=lambda row: str(row["started"]), reverse=True)
    rows += [_row(look.summary(root, record), orders.get(record.id)) for record in records]
    rows = [row for row in rows if state in ("", row["state"]) and pipeline in ("", row["pipeline"])]
    return {"items": rows[:limit], "total": len(rows)}


@api.get("/runs/{run}")
def get_run(request: Request, run: str, actor: CurrentActor, root: CurrentRoot) -> dict[str, Any]:
    """One run: its order, steps, graph, metrics, artifacts."""
    actor.require("read")
    order = check_own(request, actor, run)
    if order is not None and not (root / run / "run.json").exists():
        return {**_queued(order), "order": _ordered(request, order), "steps_detail": [], "graph": [], "report": False,
                "resumable": False, "inputs": {}, "versions": {}, "host": {}, "links": {}, "progress": None,
                "origin": order.order.pipeline, "experiment": ""}  # fmt: skip
    found = look.detail(root, run)
    row = _row(found, order)
    return {**row, "order": _ordered(request, order), "links": _links(request, found), "progress": _share(found)}


@api.get("/runs/{run}/curves")
def get_curves(request: Request, run: str, actor: CurrentActor, root: CurrentRoot) -> dict[str, Any]:
    """Curves by name and step."""
    actor.require("read")
    check_own(request, actor, run)
    return {"run": run, "curves": look.curves(root, run)}


@api.post("/runs/{run}/cancel")
def cancel_run(request: Request, run: str, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Take it out of the queue, or stop it; finished steps are kept."""
    actor.require("run")
    order = check_own(request, actor, run)
    if order is None:
        look.find(desk.settings.root, run)
        raise ConflictError("the run was started from a command line", place=run, cure="press Ctrl-C there")
    return {"run": run, "changed": desk.cancel(order)}


@api.post("/runs/{run}/resume", status_code=201)
def resume_run(request: Request, run: str, body: Resume, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Go on with a run that ended early: finished steps are kept, failed ones tried again."""
    actor.require("run")
    before = check_own(request, actor, run)
    folder = look.find(desk.settings.root, run)
    if before is not None and before.order.target != "local":
        order = Order.model_validate({**before.order.model_dump(), "resume": run, "values": {}, "name": ""})
        return ordered_json(desk.place(actor.workspace, actor.account, order))
    if folder.record.state == "done" and not body.from_step:
        raise RunConflictError(f"run {run} is done", place=run, cure="name a step to run again from, or clone it")
    base = before.order if before is not None else Order(pipeline=folder.record.pipeline, profile=folder.record.profile)
    order = Order(
        pipeline=base.pipeline, profile=base.profile, harness=base.harness, budget=base.budget, cache=base.cache,
        resume=run, from_step=body.from_step,
    )  # fmt: skip
    return ordered_json(desk.place(actor.workspace, actor.account, order))


@api.get("/runs/{run}/steps/{step}/log")
def get_log(
    request: Request, run: str, step: str, actor: CurrentActor, root: CurrentRoot, offset: int | None = None
) -> dict[str, Any]:
    """Whole lines of a step's log from `offset`, and where they end."""
    actor.require("read")
    check_own(request, actor, run)
    text, end = look.read_log(_log(root, run, step), offset)
    return {"run": run, "step": step, "text": text, "offset": end, "over": _over(root, run, step)}


@api.get("/runs/{run}/steps/{step}/log/stream")
def stream_log(
    request: Request,
    run: str,
    step: str,
    actor: CurrentActor,
    root: CurrentRoot,
    offset: int | None = None,
    last_event_id: str | None = Header(None),
) -> StreamingResponse:
    """The log as server-sent events while it is written; the id of an event is the offset behind it."""
    actor.require("read")
    check_own(request, actor, run)
    begin = int(last_event_id) if last_event_id and last_event_id.isdecimal() else offset
    return _events(_log_events(root, run, step, _log(root, run, step), begin))


@api.get("/runs/{run}/stream")
def stream_run(request: Request, run: str, actor: CurrentActor, root: CurrentRoot) -> StreamingResponse:
    """An event whenever the run's record or a curve changed; `end` once nothing will change any more."""
    actor.require("read")
    check_own(request, actor, run)
    return _events(_run_events(request, root, run))


@api.get("/runs/{a}/against/{b}")
def get_comparison(request: Request, a: str, b: str, actor: CurrentActor, root: CurrentRoot) -> dict[str, Any]:
    """Config, metrics, curves and conversations of two runs."""
    actor.require("read")
    for run in (a, b):
        check_own(request, actor, run)
    return comparisons.compare(root, a, b, samples=actor.may("traces"))


# ---- pages ----------------------------------------------------------------------------------------------------


@router.get("/runs")
def listing(
    request: Request, view: Page, actor: CurrentActor, root: CurrentRoot, state: str = "", pipeline: str = ""
) -> Response:
    """All runs."""
    body = list_runs(request, actor, root, state, pipeline, PAGE)
    return view.page(request, "runs.html", body, state=state, pipeline=pipeline, states=STATES)


@router.get("/runs/compare")
def choose(a: str = "", b: str = "") -> Response:
    """From two chosen runs to their comparison."""
    if not (a and b):
        raise NotFoundError("two runs are compared", place="runs", cure="choose both")
    return RedirectResponse(f"/runs/{a}/against/{b}", 303)


@router.get("/runs/{run}")
def one(request: Request, run: str, view: Page, actor: CurrentActor, root: CurrentRoot, step: str = "") -> Response:
    """One run with its live parts."""
    body = get_run(request, run, actor, root)
    return view.page(request, "run.html", body, **_live(request, root, body, step))


@router.get("/runs/{run}/live")
def live(request: Request, run: str, view: Page, actor: CurrentActor, root: CurrentRoot, step: str = "") -> Response:
    """The parts of a run's page that change, as a fragment."""
    body = get_run(request, run, actor, root)
    return view.page(request, "run_live.html", body, **_live(request, root, body, step))


@router.get("/runs/{run}/report")
def report(request: Request, run: str, actor: CurrentActor, root: CurrentRoot) -> Response:
    """The run's report; it holds conversations."""
    actor.require("traces")
    check_own(request, actor, run)
    folder = look.find(root, run)
    if not folder.report.exists():
        raise NotFoundError(f"run {run} has no report yet", place=run, cure="wait until it is done")
    return FileResponse(folder.report, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


@router.get("/runs/{a}/against/{b}")
def comparison(request: Request, a: str, b: str, view: Page, actor: CurrentActor, root: CurrentRoot) -> Response:
    """Two runs."""
    body = get_comparison(request, a, b, actor, root)
    drawn = [_plot(name, lines) for name, lines in body["curves"].items()]
    return view.page(request, "run_compare.html", body, drawn=drawn)


@router.post("/runs/{run}/cancel")
def cancel(request: Request, run: str, actor: CurrentActor, desk: CurrentDesk, form: Form) -> Response:
    """Stop a run from its page."""
    cancel_run(request, run, actor, desk)
    return RedirectResponse(f"/runs/{run}", 303)


@router.post("/runs/{run}/resume")
def resume(request: Request, run: str, actor: CurrentActor, desk: CurrentDesk, form: Form) -> Response:
    """Go on with a run from its page."""
    resume_run(request, run, Resume(from_step=form.get("from_step", "")), actor, desk)
    return RedirectResponse(f"/runs/{run}", 303)


# ---- shapes ---------------------------------------------------------------------------------------------------


def _queued(one: Ordered) -> dict[str, Any]:
    """A row for an order whose run has no folder: it waits, or it never came to be."""
    return {
        "run": one.run, "pipeline": one.order.pipeline, "profile": one.order.profile, "runner": one.order.target,
        "state": "running" if one.state == "running" else one.state, "done": 0, "steps": 0, "started": one.created_at,
        "ended": one.ended_at, "seconds": 0.0, "config": "", "code": "", "by": one.created_by,
        "schedule": one.schedule, "fault": one.fault.model_dump(mode="json") if one.fault else None,
    }  # fmt: skip


def _row(row: Mapping[str, Any], order: Ordered | None) -> dict[str, Any]:
    """A run's row with who asked for it; the order's word wins where it says more than the folder's."""
    told = row["state"]
    if order is not None and (order.state in ("cancelled", "over_budget") and told in ("interrupted", "running")):
        told = order.state
    if order is not None and order.state in ACTIVE:
        told = order.state  # the folder may be ahead of the desk, which has the last word
    fault = order.fault.model_dump(mode="json") if order is not None and order.fault else None
    return {**row, "state": told, "by": order.created_by if order else "", "schedule": order.schedule if order else "",
            "fault": fault}  # fmt: skip


def _ordered(request: Request, order: Ordered | None) -> dict[str, Any] | None:
    if order is None:
        return None
    desk: Desk = request.app.state.desk
    waiting = [
        one.id for one in desk.store.active() if one.state == "queued" and one.order.target == order.order.target
    ]
    return ordered_json(order, waiting.index(order.id) + 1 if order.id in waiting else None)


def _share(found: Mapping[str, Any]) -> float | None:
    """How much of the steps is behind it, for a progress bar; None when it is over."""
    if found["state"] not in ("running", "waiting") or not found["steps"]:
        return None
    parts = sum(step["share"] or 0.0 for step in found["steps_detail"])
    return round(float(found["done"] + parts) / int(found["steps"]), 3)


def _links(request: Request, found: Mapping[str, Any]) -> dict[str, str]:
    """Where else the run can be seen, by what the console was told."""
    settings: Mapping[str, str] = getattr(request.app.state, "links", {})
    links = {}
    if settings.get("mlflow"):
        links["mlflow"] = f"{settings['mlflow'].rstrip('/')}/#/{_in_mlflow(found)}"
    for name, runner in (("kfp", "kubeflow"), ("argo", "argo")):
        if settings.get(name) and found["runner"] == runner and found["remote"]:
            links[name] = f"{settings[name].rstrip('/')}/{found['remote']}"
    return links


def _in_mlflow(found: Mapping[str, Any]) -> str:
    """Where MLflow shows the run: what it logged, once it has registered a model, else the list of experiments."""
    query = urlencode({"searchFilter": f'tags.`hatstack.run` = "{found["run"]}"'})
    return f"experiments/{found['experiment']}/runs?{query}" if found["experiment"] else "experiments"


def _live(request: Request, root: Path, body: Mapping[str, Any], step: str) -> dict[str, Any]:
    """What the templates draw: graph, plots, the step whose log is shown."""
    language = preferred(request.cookies.get("hatstack_language"), request.headers.get("accept-language", ""))
    t = translator(language)
    steps = {one["step"]: one for one in body["steps_detail"]}
    words = {state: t(f"run.state.{state}") for state in SIGNS}
    states = {name: one["state"] for name, one in steps.items()}
    chosen = step if step in steps else _interesting(steps)
    drawn = graph(t("run.graph", run=body["run"]), body["graph"], states, words, f"/runs/{body['run']}?step=")
    plots = [_plot(name, lines) for name, lines in look.curves(root, str(body["run"])).items()] if steps else []
    over = body["state"] not in ("queued", "running")
    return {"drawn": drawn, "plots": plots, "step": chosen, "detail": steps.get(chosen), "over": over, "signs": SIGNS}


def _interesting(steps: Mapping[str, Mapping[str, Any]]) -> str:
    """The step that a reader wants to see first: one that failed, else one that runs, else the last with a log."""
    for wanted in ("failed", "running", "interrupted"):
        for name, one in steps.items():
            if one["state"] == wanted:
                return name
    return next((name for name, one in reversed(list(steps.items())) if one["log"]), "")


def _plot(name: str, lines: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    made = [svg.Curve(label, tuple((x, y) for x, y in points)) for label, points in lines.items()]
    drawn = svg.curves(name, made, x_label="", y_label=name)
    last = [(label, points[-1][0], points[-1][1], len(points)) for label, points in lines.items() if points]
    return {"name": name, "svg": drawn, "rows": last}


def _log(root: Path, run: str, step: str) -> Path:
    folder = look.find(root, run)
    if step not in folder.record.steps:
        raise NotFoundError(f"run {run} has no step {step[:64]!r}", place=run, cure=", ".join(folder.record.steps))
    return folder.step(step).log


def _over(root: Path, run: str, step: str) -> bool:
    """Whether nothing more will be written to a step's log, as things stand."""
    folder = look.find(root, run)
    state = folder.record.steps[step].state
    return state not in ("waiting", "running") or look.state(root, folder.record) != "running"


def _events(made: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(
        made, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


async def _log_events(root: Path, run: str, step: str, path: Path, offset: int | None) -> AsyncIterator[str]:
    idle = 0
    while True:
        over = await asyncio.to_thread(_over, root, run, step)  # asked first, so that nothing written before is missed
        text, end = await asyncio.to_thread(look.read_log, path, offset)
        if text:
            offset, idle = end, 0
            yield f"id: {end}\nevent: lines\ndata: {json.dumps(text, ensure_ascii=False)}\n\n"
        elif over:
            yield "event: end\ndata: {}\n\n"
            return
        else:
            idle += 1
            if idle % 75 == 0:
                yield ": still here\n\n"
        await asyncio.sleep(LOOK_S)


async def _run_events(request: Request, root: Path, run: str) -> AsyncIterator[str]:
    seen: object = None
    idle = 0
    while True:
        mark, over = await asyncio.to_thread(_mark, request, root, run)
        if mark != seen:
            seen, idle = mark, 0
            yield f"event: changed\ndata: {json.dumps({'run': run})}\n\n"
        if over:
            yield "event: end\ndata: {}\n\n"
            return
        idle += 1
        if idle % 30 == 0:
            yield ": still here\n\n"
        await asyncio.sleep(0.5)


def _mark(request: Request, root: Path, run: str) -> tuple[object, bool]:
    """What changes when the run's page would, and whether it is over."""
    desk: Desk | None = getattr(request.app.state, "desk", None)
    order = desk.store.of_run(run) if desk else None
    place = root / run
    files = [place / "run.json", place / "report.html", *sorted(place.glob("steps/*/progress.jsonl"))]
    sizes = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files if path.exists())
    waiting = order is not None and order.state in ("queued", "running")
    if not (place / "run.json").exists():
        return (order.state if order else "", sizes), not waiting
    running = look.state(root, look.find(root, run).record) == "running"
    return (order.state if order else "", sizes, running), not (running or waiting)
