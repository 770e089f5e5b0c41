"""Suites with a scenario of their own, whose items bring their harness: nothing of them is in the run's data.

Always holds: items and harnesses follow from the suite's seed alone, so that every model meets the same ones; they are of
split `test` and no step trains on the scenario. Not here: playing and scoring (step).
"""

from __future__ import annotations

from typing import Protocol, cast

from hat_components.scenarios import load
from hat_components.sessions import State
from hat_components.suites import Suite
from hat_harness.augment.engine import base_digest
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Scenario

Case = tuple[Item, State]


class Housed(Scenario, Protocol):
    """A scenario whose items bring their harness."""

    def harness_of(self, item: Item) -> Harness:
        """The item's own harness."""


def own_cases(suite: Suite, seed: int, limit: int | None) -> tuple[Scenario, list[Case]]:
    """The suite's scenario and its items under their harnesses, the first `limit` of them."""
    scenario = cast(Housed, load(suite.scenario, suite.settings))
    wanted = suite.items if limit is None else min(limit, suite.items)
    cases = []
    for item in scenario.items(seed, "test", wanted, 1):
        harness = scenario.harness_of(item)
        cases.append((item, State(harness, base_digest(harness))))
    return scenario, cases
