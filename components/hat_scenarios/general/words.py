"""Words for general data, and random names and phrases made of them.

Always holds: a draw consumes nothing but its `random.Random`; names satisfy `hat_harness.spec.NAME_PATTERN`; no draw
contains a word of `avoid`. Not here: what is done with them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final


def split(text: str) -> tuple[str, ...]:
    """The words of a text; pools read better so."""
    return tuple(text.split())


OBJECTS: Final = split(
    """
basket garden cabin recipe machine bridge violin camera stairs mirror pencil rocket saddle tunnel valley wallet anchor
barrel canyon dragon forest hammer island jungle kitten magnet needle oyster pirate rabbit
"""
)
VERBS: Final = split(
    """
paint polish clean repair carry fold count open close shift sort verify mark print dig store teach wash wrap
"""
)
QUALITIES: Final = split("weight grade height depth speed age taste level sound shape")


@dataclass(frozen=True)
class Topic:
    """What a request names in one word and catalogues in many."""

    asks: tuple[str, ...]
    """Words that a request may use."""
    skills: tuple[str, ...]
    """Words that the description of a skill for it may begin with."""
    tools: tuple[str, ...]
    """The same of a tool."""


def _topics(table: str) -> tuple[Topic, ...]:
    rows = (tuple(split(part) for part in row.split("/")) for row in table.strip().splitlines())
    return tuple(Topic(*row) for row in rows)


TOPICS: Final = _topics(
    """
river water / brook canal creek / flowing pumping pouring
bread flour / bakery dough loaf / baking kneading toasting
winter snow / frost icy freezing / sledding melting thawing
music singing / melody concert chorus / strumming drumming humming
horse pony / stable rider gallop / grooming feeding shoeing
light candles / lantern bulb torch / dimming glowing shining
train rail / station railway wagon / steering braking hauling
doctor nurse / clinic hospital medical / healing curing testing
school class / lesson pupil homeroom / reading spelling grading
farmer acre / harvest crops tractor / ploughing sowing reaping
sailor boat / harbour vessel ferry / sailing mooring rowing
painter canvas / artist gallery portrait / sketching drawing tinting
builder brick / masonry concrete plaster / digging stacking mixing
soldier army / barracks troop captaincy / marching saluting drilling
writer novel / author poetry essay / typing printing editing
thief crime / police detective clue / searching arresting chasing
flower blossom / florist bouquet petal / watering trimming planting
weather rain / cloudy stormy forecast / measuring predicting warning
funds bank / ledger cashbox savings / lending paying hoarding
hunter wolf / tracks wild prey / trapping stalking aiming
"""
)
"""Requests that are not worded like the catalogue: a model must find the line that means what is asked."""
NUMBERS: Final = tuple(str(number) for number in range(2, 400, 3))


@dataclass(frozen=True)
class Words:
    """What general data is written with. `words` are whole words; `pieces` any strings that copying should work for."""

    words: tuple[str, ...]
    pieces: tuple[str, ...] = ()
    """Raw token texts of a tokenizer, leading space or underscore included; empty: made of words."""
    avoid: frozenset[str] = frozenset()
    """Words that must never come up (held out of this training)."""

    @staticmethod
    def of(words: tuple[str, ...], pieces: tuple[str, ...] = (), avoid: frozenset[str] = frozenset()) -> Words:
        """`words` and `pieces` without those to avoid; duplicates go."""
        kept = tuple(word for word in dict.fromkeys(words) if word not in avoid)
        return Words(kept, tuple(piece for piece in dict.fromkeys(pieces) if piece.strip(" _") not in avoid), avoid)


def part(rng: random.Random, words: Words, kind: float | None = None) -> str:
    """One part of a name: half a word, a quarter random letters, a quarter pieces; `kind` in [0, 1) fixes which."""
    draw = rng.random() if kind is None else kind
    if draw < 0.5:
        return rng.choice(words.words)
    bare = [piece for piece in (rng.choice(words.pieces) for _ in range(4)) if piece.isalpha()] if words.pieces else []
    while True:
        if draw < 0.75 or not bare:
            text = "".join(rng.choice(ascii_lowercase) for _ in range(rng.randint(2, 6)))
        else:
            text = "".join(bare[: rng.randint(1, 3)]).lower()
        if text.isascii() and text.isalpha() and text not in words.avoid:
            return text[:20]
        bare = []


def name(rng: random.Random, words: Words) -> str:
    """One to three parts joined by `_`; mixed, all words or all letters."""
    kind = rng.choice((None, 0.1, 0.6))
    count = rng.choices((1, 2, 3), (15, 70, 15))[0]
    return "_".join(part(rng, words, kind) for _ in range(count))


def names(rng: random.Random, words: Words, count: int, taken: set[str]) -> list[str]:
    """`count` names that differ from each other and from `taken`, which they join."""
    found: list[str] = []
    while len(found) < count:
        drawn = name(rng, words)
        if drawn not in taken:
            taken.add(drawn)
            found.append(drawn)
    return found


def phrase(rng: random.Random, words: Words, least: int, most: int) -> str:
    """`least` to `most` parts, three in four of them whole words."""
    return " ".join(part(rng, words, rng.choice((0.1, 0.1, 0.1, 0.6))) for _ in range(rng.randint(least, most)))
