"""What pages of pipelines and runs share: the desk, the runs directory, whose run it is.

Always holds: a run that was ordered in one workspace is not shown in another; runs from the command line belong to
`default`. Not here: pages (pipelines, runs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from hat_console.pages import CurrentActor
from hat_console.session import check_change
from hat_pipelines.desk.desk import Desk
from hat_pipelines.desk.store import Ordered
from hat_pipelines.runs import RUN_ID
from hat_registry.accounts import Actor
from hat_registry.errors import NotFoundError, StoreError

DEFAULT = "default"
MOST_FIELDS = 1000


def desk_of(request: Request) -> Desk:
    """The desk; StoreError where the console was started without one."""
    found: Desk | None = getattr(request.app.state, "desk", None)
    if found is None:
        raise StoreError("this console starts no runs", cure="start it with --runs and --profiles, as `hat up` does")
    return found


def root_of(request: Request) -> Path:
    """The runs directory; StoreError where the console has none."""
    found: Path | None = getattr(request.app.state, "runs", None)
    if found is None:
        raise StoreError("this console knows no runs directory", cure="start it with --runs DIR")
    return found


def order_of(request: Request, run: str) -> Ordered | None:
    """The latest order of a run, where there is a desk."""
    desk: Desk | None = getattr(request.app.state, "desk", None)
    return desk.store.of_run(run) if desk is not None else None


def check_own(request: Request, actor: Actor, run: str) -> Ordered | None:
    """The run's order. NotFoundError when there is no such run, or it belongs to another workspace."""
    order = order_of(request, run) if RUN_ID.match(run) else None
    stands = order is not None or bool(RUN_ID.match(run) and (root_of(request) / run / "run.json").exists())
    if not stands or (order.workspace if order else DEFAULT) != actor.workspace:
        raise NotFoundError(f"no run {run[:64]!r}", place="runs", cure="see /runs")
    return order


async def wide_form_of(request: Request) -> dict[str, str]:
    """The fields of a large posted form, once its CSRF token has been checked."""
    posted = await request.form(max_fields=MOST_FIELDS, max_files=0)
    fields = {name: value for name, value in posted.items() if isinstance(value, str)}
    check_change(request, getattr(request.state, "csrf", ""), fields.pop("csrf", ""))
    return fields


def ordered_json(one: Ordered, position: int | None = None) -> dict[str, Any]:
    """An order as plain data."""
    return {
        "id": one.id,
        "run": one.run,
        "state": one.state,
        "position": position,
        "order": one.order.model_dump(mode="json"),
        "schedule": one.schedule,
        "created_by": one.created_by,
        "created_at": one.created_at,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
        "fault": one.fault.model_dump(mode="json") if one.fault else None,
    }


CurrentDesk = Annotated[Desk, Depends(desk_of)]
CurrentRoot = Annotated[Path, Depends(root_of)]
WideForm = Annotated[dict[str, str], Depends(wide_form_of)]

__all__ = ["CurrentActor", "CurrentDesk", "CurrentRoot", "WideForm"]
