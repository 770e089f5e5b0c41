"""`/overview` and `/harnesses/{name}/versions/{selector}/content`: what runs now, and what a version holds."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import select

from hat_harness.render import parts_cost, render_system
from hat_harness.segments import estimate
from hat_harness.spec import Harness
from hat_registry import evidence, ledger, mutes, pointers, proposals
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.registry import plain
from hat_registry.store.tables import pointer

router = APIRouter(tags=["overview"])
SAMPLE_ROOM = {"list": ["…"]}
"""Stands for a room where a prompt is shown without one."""


@router.get("/overview")
async def overview(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Pointers that are live, proposals that wait, the newest ledger rows, and what is muted."""
    actor.require("read")
    with registry.database.read() as tx:
        query = select(pointer).where(pointer.c.workspace == actor.workspace).order_by(pointer.c.moved_at.desc())
        live = [dict(row._mapping) for row in tx.execute(query.limit(50))]
        waiting = [
            plain(one) for state in ("open", "approved") for one in proposals.listing(tx, actor.workspace, state=state)
        ]
        rows = [plain(row) for row in ledger.rows(tx, actor.workspace, newest_first=True, limit=5)]
        silenced = sorted(mutes.rooms(tx, actor.workspace))
    for one in waiting:
        one["waits_for_you"] = (
            actor.may("approve", one["name"]) and one["author"] != actor.account and one["state"] == "open"
        )
    return {"pointers": live, "proposals": waiting, "ledger": rows, "muted": silenced}


@router.get("/harnesses/{name}/versions/{selector}/content")
def get_content(name: str, selector: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """The parts of a version, its rendered prompt with the tokens that each part costs, where it runs and what is known of it."""
    actor.require("read", name)
    version, harness = registry.load(actor.workspace, name, selector)
    with registry.database.read() as tx:
        pieces = evidence.of_subject(tx, actor.workspace, version.digest)
        stands = [one for one in pointers.of_name(tx, actor.workspace, "harness", name) if one.digest == version.digest]
    return {
        **{key: value for key, value in plain(version).items() if key not in {"parts"}},
        **rendered(harness),
        "pointers": [plain(one) for one in stands],
        "evidence": [{"digest": digest, **piece.model_dump(mode="json")} for digest, piece in pieces],
    }


def rendered(harness: Harness) -> dict[str, Any]:
    """The parts and the prompt that the model would see, with tokens by part (an estimate: a quarter of the bytes)."""
    return {
        "harness": harness.model_dump(mode="json", exclude={"files"}),
        "prompt": render_system(harness, SAMPLE_ROOM),
        "cost": [{"part": part, "tokens": tokens} for part, tokens in parts_cost(harness, SAMPLE_ROOM, estimate)],
    }
