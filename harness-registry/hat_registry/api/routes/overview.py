"""`/overview` and `/harnesses/{name}/versions/{selector}/content`: what runs now, and what a version holds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from hat_harness.render import parts_cost, render_system
from hat_harness.segments import estimate
from hat_harness.spec import Harness
from hat_registry import evidence, ledger, mutes, pointers, proposals, ways_back
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.api.routes import history
from hat_registry.registry import plain

router = APIRouter(tags=["overview"])
SAMPLE_ROOM = {"list": ["…"]}
"""Stands for a room where a prompt is shown without one."""


@router.get("/overview")
async def overview(
    actor: CurrentActor, registry: CurrentRegistry, upto: Annotated[int | None, Query(ge=0, le=2**53)] = None
) -> dict[str, Any]:
    """Pointers that are live, proposals that wait, the newest ledger rows, and what is muted; `upto`: as of a row."""
    actor.require_some("read")
    only = actor.names("read")
    with registry.database.read() as tx:
        stood = history.state_of(tx, actor, upto)
        waiting = [
            plain(one)
            for state in ("open", "approved")
            for one in proposals.listing(tx, actor.workspace, state=state, only=only)
        ]
        silenced = sorted(mutes.rooms(tx, actor.workspace))
        rows = ledger.rows(tx, actor.workspace, newest_first=True, limit=5, upto=stood["upto"], only=only)
    for one in waiting:
        one["waits_for_you"] = (
            actor.may("approve", one["name"]) and one["author"] != actor.account and one["state"] == "open"
        )
    bounds = {key: stood[key] for key in ("first", "first_at", "last", "last_at", "upto")}
    return {
        "pointers": stood["pointers"][:50],
        "proposals": waiting,
        "ledger": [plain(row) for row in rows],
        "muted": silenced,
        "muted_then": stood["muted"],
        **bounds,
    }


@router.get("/harnesses/{name}/versions/{selector}/content")
def get_content(name: str, selector: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """The parts of a version, its rendered prompt with the tokens that each part costs, where it runs and what is known of it."""
    actor.require("read", name)
    version, harness = registry.load(actor.workspace, name, selector)
    with registry.database.read() as tx:
        pieces = evidence.of_subject(tx, actor.workspace, version.digest)
        ran = ways_back.stood(tx, actor.workspace, "harness", name, version.digest)
        stands = [one for one in pointers.of_name(tx, actor.workspace, "harness", name) if one.digest == version.digest]
    return {
        **{key: value for key, value in plain(version).items() if key not in {"parts"}},
        **rendered(harness),
        "pointers": [plain(one) for one in stands],
        "ran": ran,
        "evidence": [{"digest": digest, **piece.model_dump(mode="json")} for digest, piece in pieces],
    }


def rendered(harness: Harness) -> dict[str, Any]:
    """The parts and the prompt that the model would see, with tokens by part (an estimate: a quarter of the bytes)."""
    return {
        "harness": harness.model_dump(mode="json", exclude={"files"}),
        "prompt": render_system(harness, SAMPLE_ROOM),
        "cost": [{"part": part, "tokens": tokens} for part, tokens in parts_cost(harness, SAMPLE_ROOM, estimate)],
    }
