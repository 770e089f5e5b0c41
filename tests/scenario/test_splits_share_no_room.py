"""Splits are disjoint by construction: a room's own content decides which split may use it."""

from __future__ import annotations

from typing import get_args

from hat_scenarios.base import Split
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.live_commerce.catalogue import BUCKETS, split_of
from hat_scenarios.live_commerce.room import Room


def test_every_room_belongs_to_the_split_that_drew_it() -> None:
    scenario = LiveCommerce(Settings(difficulty=2))
    seen: dict[str, str] = {}
    for split in get_args(Split):
        for item in scenario.items(11, split, 60, turns=1):
            room = Room.model_validate(item.room)
            assert split_of(room) == split
            assert seen.setdefault(item.model_dump_json(include={"room"}), split) == split


def test_what_happens_in_a_room_does_not_move_it_to_another_split() -> None:
    for item in LiveCommerce().items(12, "test", 20, turns=1):
        room = Room.model_validate(item.room)
        moved = room.moved(room.names[-1], "first").explaining(room.names[0])
        changed = moved.changed({"campaign": {"percent": 30}, "stack": False})
        assert split_of(changed) == "test"


def test_the_splits_own_all_rooms_and_each_room_once() -> None:
    owned = [bucket for buckets in BUCKETS.values() for bucket in buckets]
    assert sorted(owned) == list(range(10))
