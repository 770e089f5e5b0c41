"""The same settings, seed, split and index give the same item, on every machine and however many are drawn."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from hat_scenarios.base import Item, ScenarioError
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.live_commerce.room import Room

GOLDEN = {
    ("published", 1, "train"): "b083cea4734fea3d",
    ("published", 1, "test"): "18e38e1381e5aa79",
    ("balanced", 2, "dev"): "ddcc610737820077",
    ("balanced", 3, "evolve"): "3c111e8f71b3bd17",
}


def scenario(mix: Any = "published", difficulty: Any = 1) -> LiveCommerce:
    return LiveCommerce(Settings(mix=mix, difficulty=difficulty))


@pytest.mark.parametrize("key", list(GOLDEN))
def test_the_first_items_have_the_recorded_digest(key: Any) -> None:
    mix, difficulty, split = key
    text = "\n".join(item.model_dump_json() for item in scenario(mix, difficulty).items(7, split, 20))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == GOLDEN[key]


def test_a_longer_run_begins_with_the_shorter_one() -> None:
    long, short = list(scenario().items(3, "train", 12)), list(scenario().items(3, "train", 5))
    assert long[:5] == short
    assert scenario().item(3, "train", 4) == short[4]
    assert len({item.id for item in long}) == 12


def test_seeds_and_settings_give_other_items() -> None:
    first = scenario().item(1, "test", 0)
    others = [
        scenario().item(2, "test", 0),
        scenario().item(1, "dev", 0),
        scenario().item(1, "test", 1),
        scenario("balanced", 2).item(1, "test", 0),
    ]
    assert all(other.room != first.room and other.id != first.id for other in others)


def test_items_and_rooms_survive_json() -> None:
    for item in scenario("balanced", 3).items(5, "test", 30):
        assert Item.model_validate_json(item.model_dump_json()) == item
        assert Room.model_validate(item.room).model_dump(mode="json") == item.room


def test_an_unknown_intent_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ScenarioError, match="no intent called sing") as caught:
        scenario({"sing": 1.0})
    assert "product_qa" in str(caught.value)
    assert caught.value.kind == "invalid_input"
