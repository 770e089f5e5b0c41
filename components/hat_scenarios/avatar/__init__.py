"""Synthetic avatars (suite T3): hosts of museums, stations, harbors …, each item under a harness of its own.

New tools, prompts and rooms; no template is shared with training. Kind `tool` varies the tools, kind `prompt` how the
prompt is written. Always holds: the same settings, seed, split and index give the same item and the same harness. Not
here: suites, which say how many items of which kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_harness.trace import turns as turns_of
from hat_scenarios.avatar.draw import draw_room, draw_turn, harness_of, world_of
from hat_scenarios.avatar.score import Host, WorldTools, score_turn
from hat_scenarios.avatar.worlds import KINDS, TOOLS
from hat_scenarios.base import Item, Scores, Split, Vocabulary

__all__ = ["Avatar", "Settings"]


class Settings(BaseModel):
    """What the items vary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tool", "prompt"] = "tool"
    wording: Literal["named", "free"] = "named"
    """Visitors name what they want in the words of the catalogue, or in words of their own, which takes a vocabulary
    that knows paraphrases."""


class Avatar:
    """The scenario, under one set of settings."""

    name = "avatar"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def items(self, seed: int, split: Split, count: int, turns: int = 1) -> Iterator[Item]:
        """`count` items of `turns` requests each."""
        kind = self.settings.kind
        for index in range(count):
            rng = random.Random(f"avatar/{kind}/{seed}/{split}/{index}")
            room = draw_room(rng, kind)
            wanted = TOOLS if kind == "tool" else KINDS
            drawn = tuple(
                draw_turn(rng, room, rng.choice(wanted), self.settings.wording == "named") for _ in range(turns)
            )
            ident = f"{self.name}-{kind}{'' if self.settings.wording == 'named' else '-free'}-{split}-{seed}-{index}"
            yield Item(id=ident, scenario=self.name, split=split, seed=seed, room=room, turns=drawn)

    def harness_of(self, item: Item) -> Harness:
        """The item's own harness."""
        return harness_of(item.room)

    def backend(self, item: Item) -> WorldTools:
        """Fresh tools over the item's world."""
        return WorldTools(item.room)

    def room_view(self, item: Item) -> Mapping[str, Any]:
        """Where it is and what can be seen there."""
        return {"place": world_of(item.room).name, "list": list(item.room["records"])}

    def expert(self) -> Host:
        """The scripted host."""
        return Host()

    def score(self, harness: Harness, item: Item, trace: Trace) -> Sequence[Scores]:
        """One score per turn; a turn that the trace does not hold scores nothing."""
        summaries = turns_of(trace)
        return [
            score_turn(harness, item, turn, summaries[index] if index < len(summaries) else None)
            for index, turn in enumerate(item.turns)
        ]

    def vocabulary(self, held_out: bool = False) -> Vocabulary:
        """Empty: these harnesses are drawn, not rewritten."""
        return Vocabulary()
