"""The live-commerce room: an AI host answers viewers of a room that sells products.

`LiveCommerce` is the scenario (hat_scenarios.base.Scenario). Always holds: items are the same to the byte for the
same settings, seed, split and index; the first `n` of a longer run are those of a shorter one; splits share no room.
Not here: harness texts (harness-registry/harnesses), the agent loop (hat_harness.session).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_harness.trace import turns as turns_of
from hat_scenarios.base import AttackKind, Item, ScenarioError, Scores, Split, Vocabulary
from hat_scenarios.live_commerce import attack
from hat_scenarios.live_commerce.backend import RoomBackend
from hat_scenarios.live_commerce.catalogue import draw_room
from hat_scenarios.live_commerce.expert import LiveCommerceExpert, room_before
from hat_scenarios.live_commerce.room import Room
from hat_scenarios.live_commerce.score import score_turn
from hat_scenarios.live_commerce.settings import BALANCED, INTENTS, PUBLISHED, Settings
from hat_scenarios.live_commerce.turns import draw_turns
from hat_scenarios.live_commerce.vocabulary import vocabulary
from hat_scenarios.live_commerce.words import INJECTIONS

__all__ = ["BALANCED", "INTENTS", "PUBLISHED", "LiveCommerce", "RoomBackend", "Settings"]


class LiveCommerce:
    """The scenario, under one set of settings."""

    name = "live_commerce"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        try:
            self.settings.weights()
        except ValueError as error:
            raise ScenarioError(str(error), place="settings.mix") from None

    def items(self, seed: int, split: Split, count: int, turns: int = 3) -> Iterator[Item]:
        """`count` items of `turns` turns each; item k depends on settings, seed, split and k alone."""
        for index in range(count):
            yield self.item(seed, split, index, turns)

    def item(self, seed: int, split: Split, index: int, turns: int = 3) -> Item:
        """The item at `index`; its id says where it comes from."""
        rng = random.Random(f"live_commerce/{seed}/{split}/{index}")
        settings = self.settings
        room = draw_room(rng, split, settings.difficulty)
        if settings.adversarial and rng.random() < settings.adversarial:
            room = room.model_copy(update={"note": rng.choice(INJECTIONS)})
        drawn = draw_turns(rng, room, turns, settings)
        mix = self.settings.mix if isinstance(self.settings.mix, str) else "own"
        return Item(
            id=f"{self.name}-{mix}{settings.difficulty}{'a' if settings.adversarial else ''}-{split}-{seed}-{index}",
            scenario=self.name,
            split=split,
            seed=seed,
            room=room.model_dump(mode="json"),
            turns=tuple(drawn),
        )

    def backend(self, item: Item) -> RoomBackend:
        """The tools over the item's room; tell it of every turn with `observe` before the turn."""
        return RoomBackend(Room.model_validate(item.room))

    def room_view(self, item: Item) -> Mapping[str, Any]:
        """The list in presentation order and the product on stage."""
        return Room.model_validate(item.room).view()

    def expert(self) -> LiveCommerceExpert:
        """The scripted expert."""
        return LiveCommerceExpert()

    def score(self, harness: Harness, item: Item, trace: Trace) -> Sequence[Scores]:
        """One score per turn; a turn that the trace does not hold scores nothing."""
        summaries = turns_of(trace)
        return [
            score_turn(harness, room_before(item, index), turn, summaries[index] if index < len(summaries) else None)
            for index, turn in enumerate(item.turns)
        ]

    def vocabulary(self, held_out: bool = False) -> Vocabulary:
        """Words for augmentation."""
        return vocabulary(held_out)

    def attacked(self, item: Item, kind: AttackKind, seed: int) -> tuple[Item, tuple[int, ...]]:
        """The item under attack and the turns, from 0, that meet it."""
        return attack.attacked(item, kind, seed)

    def yielded(self, harness: Harness, scores: Scores, reply: str) -> bool:
        """Whether a final reply gave in to an attack."""
        return attack.yielded(harness, scores, reply)
