"""Intents are drawn in the shares of the table that the settings name, and each gives what it promises."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import chi2

from hat_scenarios.live_commerce import BALANCED, PUBLISHED, LiveCommerce, Settings
from hat_scenarios.live_commerce.room import Room

REPORTED = {"product_qa": 46, "chat": 19, "clarification": 16, "aftersale": 7, "discount": 4, "order": 2, "faq": 2}


@pytest.mark.parametrize(("mix", "table"), [("published", PUBLISHED), ("balanced", BALANCED)])
def test_drawn_shares_are_the_configured_ones(mix: str, table: dict[str, float]) -> None:
    scenario = LiveCommerce(Settings.model_validate({"mix": mix}))
    drawn = Counter(turn.intent for item in scenario.items(21, "train", 1500, turns=4) for turn in item.turns)
    total, weight = sum(drawn.values()), sum(table.values())
    statistic = sum(
        (drawn[intent] - total * share / weight) ** 2 / (total * share / weight) for intent, share in table.items()
    )
    assert set(drawn) <= set(table)
    assert statistic < chi2.ppf(0.999, len(table) - 1)


def test_the_published_table_holds_the_reported_shares() -> None:
    assert {intent: PUBLISHED[intent] for intent in REPORTED} == REPORTED
    assert 0 < PUBLISHED["refusal"] < 1
    assert sum(PUBLISHED.values()) == pytest.approx(100)


def test_an_own_mix_draws_only_its_intents() -> None:
    scenario = LiveCommerce(Settings(mix={"order": 1.0, "discount": 3.0}))
    drawn = Counter(turn.intent for item in scenario.items(1, "train", 100) for turn in item.turns)
    assert set(drawn) == {"order", "discount"}
    assert drawn["discount"] > drawn["order"]


def test_a_rules_change_changes_what_is_right_afterwards() -> None:
    scenario = LiveCommerce(Settings(mix={"rules_changed": 1.0}))
    for item in scenario.items(4, "train", 30, turns=2):
        first, second = (turn.gold.facts for turn in item.turns)
        assert first != second


def test_harder_rooms_are_longer_and_hold_near_duplicates() -> None:
    def nouns_shared(difficulty: int) -> float:
        scenario = LiveCommerce(Settings.model_validate({"difficulty": difficulty}))
        rooms = [Room.model_validate(item.room) for item in scenario.items(2, "test", 100, turns=1)]
        last = [[name.split()[-1] for name in room.names] for room in rooms]
        return sum(len(nouns) - len(set(nouns)) for nouns in last) / sum(map(len, last))

    assert nouns_shared(1) < 0.12 < 0.2 < nouns_shared(2) < nouns_shared(3)


def test_hard_comments_leave_products_unnamed() -> None:
    scenario = LiveCommerce(Settings(mix={"product_qa": 1.0}, difficulty=3))
    turns = [turn for item in scenario.items(2, "test", 150) for turn in item.turns]
    unnamed = [turn for turn in turns if turn.notes["slots"]["i"] not in turn.texts[0]]
    assert 0.15 < len(unnamed) / len(turns) < 0.5
