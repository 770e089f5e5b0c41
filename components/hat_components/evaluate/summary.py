"""From item scores to what a suite says: means, bootstrap intervals, groups by intent and rewrite family.

Always holds: means are over items, so that long items weigh no more than short ones; the interval's seed is fixed by
the config. Not here: making item scores (rollouts, answers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hat_components.evaluate.result import Group, Interval, ItemResult, SuiteResult, TurnResult, mean_values
from hat_components.suites import Suite
from hat_scenarios.base import Scores
from hat_stats.bootstrap import bootstrap_mean


def turn_result(intent: str, scores: Scores) -> TurnResult:
    """A turn's four scores and AVG, the mean of the first two."""
    values = {
        "average": (scores.accuracy + scores.effectiveness) / 2,
        "accuracy": scores.accuracy,
        "effectiveness": scores.effectiveness,
        "skill_selection": scores.skill_selection,
        "tool_rationality": scores.tool_rationality,
    }
    return TurnResult(intent=intent, values=values, causes=scores.causes)


def intervals(items: Sequence[ItemResult], draws: int, seed: int) -> dict[str, Interval]:
    """Every metric's mean over items with its 95 % interval."""
    found: dict[str, Interval] = {}
    for metric in items[0].values:
        estimate = bootstrap_mean([item.values[metric] for item in items], draws=draws, seed=seed)
        found[metric] = Interval(mean=estimate.value or 0.0, low=estimate.low, high=estimate.high)
    return found


def by_intent(items: Sequence[ItemResult]) -> dict[str, Group]:
    """Means over turns by intent, the commonest intent first."""
    turns: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for item in items:
        for turn in item.turns:
            turns[turn.intent].append(turn.values)
    ordered = sorted(turns.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return {intent: Group(n=len(rows), means=mean_values(rows)) for intent, rows in ordered if intent}


def by_family(items: Sequence[ItemResult]) -> dict[str, Group]:
    """Means over the items whose states have a family; a family is named once however often it was applied."""
    rows: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for item in items:
        for family in dict.fromkeys(item.families):
            rows[family].append(item.values)
    return {family: Group(n=len(found), means=mean_values(found)) for family, found in sorted(rows.items())}


def suite_result(
    suite: Suite,
    items: Sequence[ItemResult],
    *,
    headline: str,
    seed: int,
    draws: int,
    boot: int,
    seconds: float,
) -> SuiteResult:
    """The suite's result; `seed` drew the states, `boot` seeds the intervals."""
    return SuiteResult(
        id=suite.id,
        title=suite.title,
        kind=suite.kind,
        headline=headline,
        seed=seed,
        paired_with=suite.paired_with,
        scores=intervals(items, draws, boot),
        intents=by_intent(items),
        families=by_family(items),
        items=tuple(items),
        seconds=round(seconds, 3),
    )
