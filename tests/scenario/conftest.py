"""Shared by the scenario tests: the harness folders and a helper that plays the expert and collects what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hat_harness.load import load_harness
from hat_harness.ports import BatchModel
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Scores
from hat_scenarios.live_commerce import LiveCommerce
from hat_scenarios.play import WrapTools, play, play_expert

HARNESSES = Path(__file__).parents[2] / "harness-registry" / "harnesses"
Played = Callable[..., list[tuple[Item, int, Scores]]]


@pytest.fixture(scope="session")
def live() -> Harness:
    return load_harness(HARNESSES / "live-commerce")


@pytest.fixture(scope="session")
def baseline() -> Harness:
    return load_harness(HARNESSES / "react-baseline")


@pytest.fixture(scope="session")
def chinese() -> Harness:
    return load_harness(HARNESSES / "live-commerce-zh")


@pytest.fixture(scope="session")
def played() -> Played:
    """(scenario, cases) → one (item, turn, scores) per turn."""

    def run(
        scenario: LiveCommerce,
        cases: Sequence[tuple[Harness, Item]],
        wrap: WrapTools | None = None,
        model: BatchModel | None = None,
    ) -> list[tuple[Item, int, Scores]]:
        traces = play(scenario, cases, model, wrap=wrap) if model else play_expert(scenario, cases, wrap=wrap)
        return [
            (item, turn, scores)
            for (harness, item), trace in zip(cases, traces, strict=True)
            for turn, scores in enumerate(scenario.score(harness, item, trace))
        ]

    return run
