"""A trace played again, as pages tell it: what it can be played with, and the old and the new answer of each turn.

Always holds: the n-th turn stands beside the n-th turn, since both sides were given the same events in the same order.
Not here: playing (hat_serving.gateway.replays), who may (pages.replays).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import quote

from hat_harness.errors import PlatformError
from hat_harness.trace import Trace, TurnSummary, turns
from hat_registry import harnesses, pointers
from hat_registry.accounts import Actor
from hat_registry.registry import Registry
from hat_serving.gateway.client import GatewayClient

VERSIONS = 30
"""Versions of a harness that the page offers, the newest first."""
Row = dict[str, Any]


def offers(actor: Actor, registry: Registry, gateway: GatewayClient | None, name: str) -> dict[str, list[Row]]:
    """`versions` of the trace's harness, with the pointers on them, and `arms` of the gateway that can answer."""
    with registry.database.read() as tx:
        known = harnesses.log(tx, actor.workspace, name, limit=VERSIONS)
        stands = pointers.of_name(tx, actor.workspace, "harness", name)
    at: dict[str, list[str]] = {}
    for one in stands:
        at.setdefault(one.digest, []).append(one.pointer)
    versions = [
        {"digest": one.digest, "number": one.number, "message": one.message, "pointers": sorted(at.get(one.digest, ()))}
        for one in known
    ]
    return {"versions": versions, "arms": _arms(gateway)}


def _arms(gateway: GatewayClient | None) -> list[Row]:
    """(deployment, arm) of everything that the gateway serves; [] while it does not say."""
    found: list[Row] = []
    if gateway is not None:
        with suppress(PlatformError):
            for name in gateway.get("/deployments")["items"]:
                told = gateway.get(f"/deployments/{quote(name, safe='')}")
                found += [{"deployment": name, "arm": arm["name"]} for arm in told["arms"]]
    return found


def beside(old: Trace, new: Trace, first: int, upto: int = 0) -> list[Row]:
    """The turns from `first` on: `before`, `after` (None where the time was over), and whether words and calls are the same."""
    asked = [one for one in turns(old) if one.index >= first and (not upto or one.index <= upto)]
    answered = turns(new)
    rows = []
    for number, before in enumerate(asked):
        after = answered[number] if number < len(answered) and not _broken_off(answered[number]) else None
        rows.append(
            {
                "index": before.index,
                "event": before.event,
                "texts": list(before.texts),
                "before": _side(before),
                "after": None if after is None else _side(after),
                "same_reply": after is not None and (after.outcome, after.reply) == (before.outcome, before.reply),
                "same_calls": after is not None and _made(after) == _made(before),
            }
        )
    return rows


def _broken_off(turn: TurnSummary) -> bool:
    """Whether the replay's time was over in this turn."""
    return turn.outcome == "silence" and turn.reason.startswith("cancelled")


def _made(turn: TurnSummary) -> list[tuple[str, Any]]:
    return [(call.tool, dict(call.arguments)) for call in turn.calls]


def _side(turn: TurnSummary) -> Row:
    return {
        "outcome": turn.outcome,
        "reply": turn.reply,
        "reason": turn.reason,
        "skills": list(turn.skills),
        "calls": [
            {"tool": call.tool, "arguments": dict(call.arguments), "result": call.result, "failure": call.failure}
            for call in turn.calls
        ],
        "model_calls": turn.model_calls,
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "ms": round(1000 * (turn.ended - turn.started), 1),
    }
