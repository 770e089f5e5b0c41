"""One policy under one harness on items: a row per turn, then scores with intervals and refusal rates.

Always holds: rows come in the order of items and turns, so two measurements of the same items pair up by place; a turn
is an error when Accuracy or Effectiveness is below 1. Not here: what differs between two measurements (effects).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hat_components.evaluate.result import Interval, TraceRecord, mean
from hat_components.evolve.policy import Actor
from hat_components.evolve.result import Measurement, Share
from hat_components.sessions import Played
from hat_harness.spec import Harness
from hat_harness.trace import TurnSummary, turns
from hat_scenarios.base import Item, Scenario, Scores, Turn
from hat_stats.agreement import proportion
from hat_stats.bootstrap import bootstrap_mean

SCORES = ("average", "accuracy", "effectiveness", "skill_selection", "tool_rationality")
QUIET = ("refuse", "silence")
"""Gold outcomes that withhold an answer."""


@dataclass(frozen=True)
class Row:
    """One turn as it was played."""

    item: str
    turn: int
    """From 1."""
    intent: str
    wanted: str
    """Gold outcome: reply, refuse, silence."""
    values: tuple[float, ...]
    """In the order of SCORES."""
    causes: tuple[str, ...]
    hooks: tuple[str, ...]
    """Hooks that fired, once each, in order."""
    withheld: bool
    """It was refused, passed over in silence, or answered under the refusing skill."""
    reply: str

    @property
    def error(self) -> bool:
        """Accuracy or Effectiveness below 1."""
        return min(self.values[1], self.values[2]) < 1.0


@dataclass(frozen=True)
class Measured:
    """All rows of one policy under one harness."""

    policy: str
    rows: tuple[Row, ...]
    items: tuple[str, ...]

    def by_item(self, metric: str) -> list[float]:
        """Mean score per item, in order of the items; `error` is the share of turns that are errors."""
        found: dict[str, list[float]] = {item: [] for item in self.items}
        at = SCORES.index(metric) if metric in SCORES else -1
        for row in self.rows:
            found[row.item].append(float(row.error) if at < 0 else row.values[at])
        return [mean(values) for values in found.values()]

    @property
    def errors(self) -> int:
        """Turns that are errors."""
        return sum(row.error for row in self.rows)


def measure(
    actor: Actor,
    scenario: Scenario,
    harness: Harness,
    items: Sequence[Item],
    *,
    seed: int,
    batch: int,
    keep: Callable[[TraceRecord], None] | None = None,
    label: str = "",
) -> Measured:
    """Play the items; `keep` is told of every session, under the suite name `label`."""
    skills = refusing_skills(items)
    rows: list[Row] = []
    for one in actor.play(scenario, harness, items, seed=seed, batch=batch):
        rows += _rows(one, skills)
        if keep is not None:
            keep(TraceRecord(suite=label, item=one.item.id, harness=one.state.digest, trace=one.trace))
    return Measured(actor.name, tuple(rows), tuple(item.id for item in items))


def refusing_skills(items: Sequence[Item]) -> frozenset[str]:
    """Canonical ids of the skills under which these items are refused; `refusal` where none is."""
    found = {turn.gold.skill for item in items for turn in item.turns if turn.gold.outcome in QUIET}
    return frozenset(found - {""}) or frozenset(("refusal",))


def measurement(measured: Measured, *, draws: int, seed: int) -> Measurement:
    """The figures of one measurement, effects left out."""
    wanted = [row for row in measured.rows if row.wanted not in QUIET]
    unwanted = [row for row in measured.rows if row.wanted in QUIET]
    causes = Counter(cause for row in measured.rows for cause in row.causes)
    return Measurement(
        policy=measured.policy,
        items=len(measured.items),
        turns=len(measured.rows),
        errors=measured.errors,
        scores={metric: _interval(measured.by_item(metric), draws, seed) for metric in SCORES},
        over_refusal=_share(sum(row.withheld for row in wanted), len(wanted)),
        missed_refusal=_share(sum(not row.withheld for row in unwanted), len(unwanted)),
        causes=dict(sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def _rows(one: Played, skills: frozenset[str]) -> list[Row]:
    summaries = turns(one.trace)
    return [
        _row(one, index, turn, scores, summaries[index] if index < len(summaries) else None, skills)
        for index, (turn, scores) in enumerate(zip(one.item.turns, one.scores, strict=True))
    ]


def _row(
    one: Played, index: int, turn: Turn, scores: Scores, summary: TurnSummary | None, skills: frozenset[str]
) -> Row:
    kinds = {skill.id: skill.kind for skill in one.state.harness.skills}
    replies = [skill for skill in summary.skills if kinds.get(skill) == "reply"] if summary else []
    withheld = summary is not None and (summary.outcome in QUIET or (bool(replies) and replies[-1] in skills))
    return Row(
        item=one.item.id,
        turn=index + 1,
        intent=turn.intent,
        wanted=turn.gold.outcome,
        values=(
            (scores.accuracy + scores.effectiveness) / 2,
            scores.accuracy,
            scores.effectiveness,
            scores.skill_selection,
            scores.tool_rationality,
        ),
        causes=scores.causes,
        hooks=tuple(dict.fromkeys(verdict.hook for verdict in summary.hooks if verdict.fired)) if summary else (),
        withheld=withheld,
        reply=summary.reply if summary else "",
    )


def _interval(values: Sequence[float], draws: int, seed: int) -> Interval:
    found = bootstrap_mean(values, draws=draws, seed=seed)
    return Interval(mean=found.value or 0.0, low=found.low, high=found.high)


def _share(count: int, n: int) -> Share:
    found = proportion(count, n)
    return Share(count=count, n=n, value=found.value, low=found.low, high=found.high)
