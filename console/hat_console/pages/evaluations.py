"""Evaluations of the runs directory, one of them, and two compared conversation by conversation.

Always holds: an evaluation is named by the digest of its file; conversations are shown only to whoever may read traces.
Not here: making evaluations (hat_components.evaluate), runs and their logs.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Query, Request, Response

from hat_components.evaluate.result import Evaluation, TraceRecord, load_evaluation
from hat_console.pages import CurrentActor, Page, judgings
from hat_console.shelf import public, shelf_of
from hat_harness.trace import turns
from hat_registry.errors import NotFoundError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["evaluation"])
MOST_ITEMS = 20


@api.get("/evaluations")
def list_evaluations(request: Request, actor: CurrentActor) -> dict[str, Any]:
    """Evaluations, the newest first."""
    actor.require("read")
    return {"items": [public(one) for one in shelf_of(request, actor).listing()]}


@api.get("/evaluations/{ident}")
def get_evaluation(request: Request, ident: str, actor: CurrentActor) -> dict[str, Any]:
    """Scores by suite, intent and family with intervals, and the items that went worst."""
    actor.require("read")
    found = shelf_of(request, actor).find(ident)
    evaluation = load_evaluation(Path(found["file"]))
    return {
        **public(found),
        **judgings.told(request, actor, found, evaluation),
        "environment": evaluation.environment,
        "suites": [
            {**suite.model_dump(mode="json", exclude={"items"}), "n": suite.n, "worst": _worst(suite)}
            for suite in evaluation.suites
        ],
        "others": [
            public(one)
            for one in shelf_of(request, actor).listing()
            if one.get("dataset") == evaluation.dataset and one["digest"] != found["digest"]
        ][:MOST_ITEMS],
    }


@api.get("/compare/{a}/{b}")
def get_comparison(request: Request, a: str, b: str, actor: CurrentActor, suite: str = "") -> dict[str, Any]:
    """a against b: contrasts in figures and words, and the items of a suite that were fixed and broken."""
    from hat_components.evaluate.compare import compare, names

    actor.require("read")
    shelf = shelf_of(request, actor)
    sides = [shelf.find(one) for one in (a, b)]
    left, right = (load_evaluation(Path(one["file"])) for one in sides)
    across = "harness" if left.harness != right.harness else "model"
    rows = compare(left, right, across=across, families=False, draws=2000)  # type: ignore[arg-type]  # a literal
    shared = [one.id for one in left.suites if right.suite(one.id) is not None]
    chosen = suite if suite in shared else shared[0]
    changed = _changed(left, right, chosen)
    if actor.may("traces"):
        _tell(changed, [Path(one["file"]).with_name("traces.jsonl") for one in sides], chosen)
    return {
        "a": public(sides[0]),
        "b": public(sides[1]),
        "names": list(names(left, right)),
        "across": across,
        "contrasts": [asdict(row) for row in rows],
        "suites": shared,
        "suite": chosen,
        **changed,
    }


@router.get("/evaluations")
def listing(request: Request, view: Page, actor: CurrentActor) -> Response:
    """All evaluations of the runs directory."""
    return view.page(request, "evaluations.html", list_evaluations(request, actor))


@router.get("/evaluations/{ident}")
def one(request: Request, ident: str, view: Page, actor: CurrentActor) -> Response:
    """One evaluation."""
    return view.page(request, "evaluation.html", get_evaluation(request, ident, actor))


@router.get("/compare")
def choose(request: Request, a: str = Query(""), b: str = Query("")) -> Response:
    """From two chosen evaluations to their comparison."""
    from fastapi.responses import RedirectResponse

    if not re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", a) or not re.fullmatch(r"(sha256:)?[0-9a-f]{8,64}", b):
        raise NotFoundError("two evaluations are compared", cure="choose both")
    return RedirectResponse(f"/compare/{a}/{b}", 303)


@router.get("/compare/{a}/{b}")
def comparison(request: Request, a: str, b: str, view: Page, actor: CurrentActor, suite: str = "") -> Response:
    """Two evaluations of the same items."""
    return view.page(request, "comparison.html", get_comparison(request, a, b, actor, suite))


def _worst(suite: Any) -> list[dict[str, Any]]:
    ordered = sorted(suite.items, key=lambda item: (item.values[suite.headline], item.item))
    return [
        {"item": item.item, "score": item.values[suite.headline],
         "causes": list(dict.fromkeys(cause for turn in item.turns for cause in turn.causes))}
        for item in ordered[:MOST_ITEMS]
        if item.values[suite.headline] < 1
    ]  # fmt: skip


def _changed(left: Evaluation, right: Evaluation, suite: str) -> dict[str, list[dict[str, Any]]]:
    """Items that a does better on (fixed) and worse on (broken), the largest change first."""
    one, other = left.suite(suite), right.suite(suite)
    assert one is not None
    assert other is not None
    a, b = one.values(one.headline), other.values(other.headline)
    gaps = sorted(
        ((a[item] - b[item], item) for item in a.keys() & b.keys()), key=lambda pair: (-abs(pair[0]), pair[1])
    )

    def rows(sign: int) -> list[dict[str, Any]]:
        chosen = [item for gap, item in gaps if sign * gap > 1e-9][:MOST_ITEMS]
        return [{"item": item, "a": a[item], "b": b[item], "turns": []} for item in chosen]

    return {"fixed": rows(1), "broken": rows(-1)}


def _tell(changed: dict[str, list[dict[str, Any]]], traces: list[Path], suite: str) -> None:
    """Put both conversations of every shown item into its row."""
    wanted = {row["item"]: row for rows in changed.values() for row in rows}
    found = [_conversations(path, suite, set(wanted)) for path in traces]
    for item, row in wanted.items():
        a, b = (side.get(item, []) for side in found)
        row["turns"] = [
            {"event": (a[k] if k < len(a) else b[k])[0], "a": a[k][1] if k < len(a) else "",
             "b": b[k][1] if k < len(b) else ""}
            for k in range(max(len(a), len(b)))
        ]  # fmt: skip


def _conversations(path: Path, suite: str, wanted: set[str]) -> dict[str, list[tuple[str, str]]]:
    """Item → (what was asked, what was answered) per turn, read line by line until all are found."""
    found: dict[str, list[tuple[str, str]]] = {}
    if not path.is_file():
        return found
    with path.open("rb") as lines:
        for line in lines:
            if len(found) == len(wanted):
                break
            try:
                record = TraceRecord.model_validate_json(line)
            except ValueError:
                continue
            if record.suite == suite and record.item in wanted and record.item not in found:
                found[record.item] = [
                    (" / ".join(turn.texts) or turn.event, turn.reply or turn.outcome) for turn in turns(record.trace)
                ]
    return found
