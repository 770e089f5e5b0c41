"""A scenario with two items in all, for tests of what happens when a scenario runs out."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from hat_scenarios.base import Gold, Item, Split, Turn


class Settings(BaseModel):
    pass


class Coin:
    name = "coin"

    def __init__(self, settings: Settings) -> None:
        pass

    def items(self, seed: int, split: Split, count: int, turns: int = 3) -> Iterator[Item]:
        for index in range(count):
            turn = Turn(intent="toss", texts=(("heads", "tails")[index % 2],), gold=Gold())
            yield Item(id=f"{split}-{index}", scenario="coin", split=split, seed=seed, room={}, turns=(turn,))
