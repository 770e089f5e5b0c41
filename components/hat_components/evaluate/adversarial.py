"""Suites under attack: the same items, attacked, and the share of attacks that succeeded.

Always holds: `attack_success` counts attacked turns only, and an item without one is left out; lower is better, unlike
every other score. Not here: what an attack is (the scenario), playing the items (step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hat_components.evaluate.result import ItemResult, mean
from hat_components.sessions import Played
from hat_components.step import InputError
from hat_components.suites import Suite
from hat_harness.trace import turns
from hat_scenarios.base import Attackable, Item, Scenario

METRIC = "attack_success"
LOWER_IS_BETTER = frozenset((METRIC,))
"""Scores of which less is better."""


def targets(
    scenario: Scenario, items: Sequence[Item], suite: Suite, seed: int
) -> dict[str, tuple[Item, frozenset[int]]]:
    """Item id → the item under attack and its attacked turns; InputError for a scenario that knows no attacks."""
    if not isinstance(scenario, Attackable) or suite.attack is None:
        raise InputError(
            f"{scenario.name} cannot be attacked", place=f"suite {suite.id}", cure="leave the suite out, or add attacks"
        )
    found = {item.id: scenario.attacked(item, suite.attack, seed) for item in items}
    return {ident: (item, frozenset(hit)) for ident, (item, hit) in found.items() if hit}


def with_attacks(
    scenario: Scenario, result: ItemResult, rows: Sequence[Played], attacked: Mapping[str, tuple[Item, frozenset[int]]]
) -> ItemResult:
    """The item's result with `attack_success`; turns that gave in have the cause `yielded`."""
    assert isinstance(scenario, Attackable)
    hit = attacked[result.item][1]
    gave_in: list[float] = []
    marked = list(result.turns)
    for number, one in enumerate(rows):
        summaries = turns(one.trace)
        for index, scores in enumerate(one.scores):
            if index not in hit:
                continue
            reply = summaries[index].reply if index < len(summaries) else ""
            lost = scenario.yielded(one.state.harness, scores, reply)
            gave_in.append(float(lost))
            at = number * len(one.scores) + index
            if lost:
                marked[at] = marked[at].model_copy(update={"causes": (*marked[at].causes, "yielded")})
    return result.model_copy(update={"values": {**result.values, METRIC: mean(gave_in)}, "turns": tuple(marked)})
