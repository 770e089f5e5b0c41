"""What an experiment's units did, one row per unit, zeros included: read from exposures, turns and events.

Always holds: a unit counts for the arm that it was assigned first, from its exposure until a ramp moved it on; a unit that did
nothing counts with zeros; a refund counts with the order that it pays back, however late it comes; units that were pinned to
an arm are never exposed and so never here. Not here: intervals and decisions (analysis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, and_, case, func, or_, select

from hat_serving.experiment import records
from hat_serving.experiment.events import event
from hat_serving.experiment.model import Experiment, MetricName

SKEW_S = 60.0
"""How far the shop's clock may be behind ours."""


@dataclass(slots=True)
class Unit:
    """What one unit did while it counted."""

    arm: str
    at: float
    """When it was exposed."""
    turns: int = 0
    safe: int = 0
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    views: int = 0
    thumbs: int = 0
    thumbs_down: int = 0
    placed: int = 0
    revenue: int = 0
    orders: set[str] = field(default_factory=set)
    refunds: int = 0


def units(tx: Connection, workspace: str, one: Experiment) -> list[Unit]:
    """Every unit of an experiment in the order of exposure."""
    found = _turns(tx, workspace, one)
    _events(tx, workspace, one, found)
    return sorted(found.values(), key=lambda unit: unit.at)


def parts(metric: MetricName, unit: Unit, price_in: float, price_out: float) -> tuple[float, float | None]:
    """(numerator, denominator) of a metric; a denominator of None is a mean per unit."""
    match metric:
        case "orders":
            return float(bool(unit.orders)), None
        case "revenue":
            return float(unit.revenue), None
        case "refunds":
            return float(bool(unit.refunds)), None
        case "thumbs":
            return float(unit.thumbs), None
        case "thumbs_down":
            return float(bool(unit.thumbs_down)), None
        case "turns":
            return float(unit.turns), None
        case "safe_replies":
            return float(unit.safe), float(unit.turns)
        case "tool_failures":
            return float(unit.tool_failures), float(unit.tool_calls)
        case "seconds_per_reply":
            return unit.seconds, float(unit.turns)
        case "cost_per_reply":
            return (unit.tokens_in * price_in + unit.tokens_out * price_out) / 1e6, float(unit.turns)


def _turns(tx: Connection, workspace: str, one: Experiment) -> dict[str, Unit]:
    exposure, turn = records.exposure, records.turn
    counted = and_(
        turn.c.workspace == exposure.c.workspace,
        turn.c.unit == exposure.c.unit,
        turn.c.deployment == one.spec.deployment,
        turn.c.at >= exposure.c.at,
        or_(exposure.c.until.is_(None), turn.c.at < exposure.c.until),
    )
    if one.stopped is not None:
        counted = and_(counted, turn.c.at <= one.stopped)
    sums = ("seconds", "tokens_in", "tokens_out", "tool_calls", "tool_failures")
    query = (
        select(
            exposure.c.unit,
            exposure.c.assigned,
            exposure.c.at,
            func.count(turn.c.number).label("turns"),
            func.coalesce(func.sum(case((turn.c.outcome == "safe", 1), else_=0)), 0).label("safe"),
            *(func.coalesce(func.sum(turn.c[name]), 0).label(name) for name in sums),
        )
        .select_from(exposure.outerjoin(turn, counted))
        .where(exposure.c.workspace == workspace, exposure.c.subject == records.experiment_subject(one.name))
        .group_by(exposure.c.unit, exposure.c.assigned, exposure.c.at)
    )
    return {
        row.unit: Unit(
            row.assigned,
            row.at,
            turns=int(row.turns),
            safe=int(row.safe),
            seconds=float(row.seconds),
            tokens_in=int(row.tokens_in),
            tokens_out=int(row.tokens_out),
            tool_calls=int(row.tool_calls),
            tool_failures=int(row.tool_failures),
        )
        for row in tx.execute(query)
    }


def _events(tx: Connection, workspace: str, one: Experiment, found: dict[str, Unit]) -> None:
    exposure = records.exposure
    mine = {"viewer": event.c.viewer, "conversation": event.c.conversation, "room": event.c.room}[one.spec.unit]
    query = (
        select(mine.label("unit"), event.c.type, event.c.order, event.c.value, event.c.at, exposure.c.until)
        .select_from(event.join(exposure, and_(exposure.c.workspace == event.c.workspace, exposure.c.unit == mine)))
        .where(event.c.workspace == workspace, exposure.c.subject == records.experiment_subject(one.name))
        .where(event.c.at >= exposure.c.at - SKEW_S)
    )
    refunds: list[tuple[str, str, int]] = []
    for row in tx.execute(query):
        unit = found[row.unit]
        if row.type == "refund":
            refunds.append((row.unit, row.order, row.value))
        elif (row.until is None or row.at < row.until) and (one.stopped is None or row.at <= one.stopped):
            _take(unit, row.type, row.order, row.value)
    for identity, order, value in refunds:
        unit = found[identity]
        if order in unit.orders:
            unit.refunds += 1
            unit.revenue += value


def _take(unit: Unit, kind: str, order: str, value: int) -> None:
    if kind == "item_view":
        unit.views += 1
    elif kind == "order_placed":
        unit.placed += 1
    elif kind == "order_confirmed":
        unit.orders.add(order)
        unit.revenue += value
    elif kind == "thumbs":
        unit.thumbs += value
        unit.thumbs_down += value < 0


def by_stage(one: Experiment, found: Sequence[Unit]) -> list[list[Unit]]:
    """Units by the stage of the ramp in which they were exposed."""
    ends = [stage.began for stage in one.stages[1:]] + [float("inf")]
    stages: list[list[Unit]] = [[] for _ in ends]
    for unit in found:
        stages[next(index for index, end in enumerate(ends) if unit.at < end)].append(unit)
    return stages
