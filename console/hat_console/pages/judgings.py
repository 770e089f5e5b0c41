"""Judging the sessions of an evaluation anew: a run of the pipeline `judge`, and what such runs have said.

Always holds: it is a run like any other, with log, budget and cancel, and takes nothing from earlier runs; which judge is asked,
and where, is the console's setting and not the page's. Not here: judging (hat_components.judge), runs (runs, pipelines).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_console.pages import CurrentActor, Form
from hat_console.pages.desk import CurrentDesk, ordered_json
from hat_console.shelf import public, shelf_of
from hat_pipelines.desk.desk import Desk
from hat_pipelines.desk.order import Order
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError, InvalidError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["evaluation"])
PIPELINE = "judge"
MOST = 20
"""Judgings that a page shows, the newest first."""


class Judge(NamedTuple):
    """Which judge the console asks; nobody while there is no endpoint."""

    endpoint: str = ""
    """Base URL of an OpenAI-compatible server, up to `/v1`."""
    model: str = ""
    """Model name at that server; "" for the judge's own."""
    name: str = "live-commerce"
    """A judge that ships with hat_components."""


class Again(BaseModel):
    """What is judged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str = Field(default="", max_length=64)
    """Suite whose sessions are judged; "" for the first that has sessions."""
    subjects: int | None = Field(default=None, ge=1)
    """Turns that are judged, the first in order; None: all."""


@api.post("/evaluations/{ident}/judge", status_code=201)
def judge(request: Request, ident: str, body: Again, actor: CurrentActor, desk: CurrentDesk) -> dict[str, Any]:
    """Order a run that judges the evaluation's sessions anew."""
    actor.require("run")
    found = shelf_of(request, actor).find(ident)
    asked = judge_of(request)
    if not asked.endpoint:
        told = "; ".join(commands(found).values())
        raise ConflictError("this console has no judge configured", place="judge", cure=told)
    suites = suites_of(found, load_evaluation(Path(found["file"])))
    if not suites or not found["step"]:
        raise InvalidError(
            "this evaluation kept no sessions in a run", place="traces", cure="evaluate with traces: true"
        )
    suite = body.suite or suites[0]
    if suite not in suites:
        raise InvalidError(f"no sessions of suite {suite!r}", place="suite", cure=f"one of: {', '.join(suites)}")
    order = Order(
        pipeline=PIPELINE,
        profile=_profile(desk),
        inputs={name: f"{found['run']}/{found['step']}.{name}" for name in ("evaluation", "traces")},
        values=_values(asked, suite, body.subjects),
        cache=False,
    )
    return ordered_json(desk.place(actor.workspace, actor.account, order))


@router.post("/evaluations/{ident}/judge")
def page(request: Request, ident: str, form: Form, actor: CurrentActor, desk: CurrentDesk) -> Response:
    """The button of an evaluation's page; on to the run."""
    placed = judge(request, ident, Again(suite=form.get("suite", "")[:64]), actor, desk)
    return RedirectResponse(f"/runs/{placed['run']}", 303)


# ---- what the page of an evaluation says of it ----------------------------------------------------------------


def told(request: Request, actor: Actor, found: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """`judge`: who would be asked, of which suites, or the commands that do without; `judged`: what runs have said."""
    asked = judge_of(request)
    return {
        "judge": {
            "configured": bool(asked.endpoint),
            "name": asked.name,
            "model": asked.model,
            "suites": suites_of(found, evaluation) if found["step"] else [],
            "commands": commands(found),
        },
        "judged": _judged(request, actor, found["digest"]),
    }


def judge_of(request: Request) -> Judge:
    """The console's judge."""
    found: Judge = getattr(request.app.state, "judge", None) or Judge()
    return found


def suites_of(found: dict[str, Any], evaluation: Evaluation) -> list[str]:
    """Suites of an evaluation on the shelf whose sessions were kept, in its order."""
    if not Path(found["file"]).with_name("traces.jsonl").is_file():
        return []
    return [suite.id for suite in evaluation.suites if suite.kind == "rollout"]


def commands(found: dict[str, Any]) -> dict[str, str]:
    """How to configure a judge, and how to judge without one configured."""
    place = "/".join(["RUNS", found["run"], *(["steps", found["step"], "artifacts"] if found["step"] else [])])
    return {
        "configure": "python -m hat_console … --judge-endpoint http://HOST:PORT/v1 --judge-model NAME",
        "by_hand": f"python -m hat_components.judge --config judge.json --input evaluation={place} --out judged",
        "config": '{"suite": "t1", "endpoint": "http://HOST:PORT/v1", "endpoint_model": "NAME"}',
    }


def _judged(request: Request, actor: Actor, digest: str) -> list[dict[str, Any]]:
    """Results of judging this very evaluation, the newest first."""
    shelf = shelf_of(request, actor)
    rows = []
    for path in shelf.artifacts("judged.json"):
        content = json.loads(path.read_bytes())
        if content.get("evaluation") == digest:
            scores = {
                name: {"n": one["n"], "raw": one["raw"], "corrected": one["corrected"], "missing": one["missing"]}
                for name, one in content["criteria"].items()
            }
            rows.append({**public(shelf.place(path)), **{key: content[key] for key in ("name", "revision", "suite", "subjects")},
                         "criteria": scores})  # fmt: skip
    return rows[:MOST]


def _profile(desk: Desk) -> str:
    """A profile to carry the section `judge`: the judge needs nothing of it."""
    names = desk.catalogue.profile_names()
    if not names:
        raise ConflictError(
            "there is no profile to run by", place="judge", cure="start the console with --profiles DIR"
        )
    return "smoke" if "smoke" in names else names[0]


def _values(asked: Judge, suite: str, subjects: int | None) -> dict[str, Any]:
    fields = {
        "judge": asked.name, "endpoint": asked.endpoint, "endpoint_model": asked.model, "suite": suite,
        "subjects": subjects,
    }  # fmt: skip
    return {f"steps.{PIPELINE}.{name}": value for name, value in fields.items() if value is not None}
