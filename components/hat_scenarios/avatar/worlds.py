"""The places where synthetic avatars work: what they show, what can be asked there, how their harnesses word it.

Always holds: no description, request or rule here is a template of training data (live_commerce, general); in one
world no two descriptions of a kind begin with the same word. Not here: drawing items (draw), scoring (score).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

KINDS: Final = ("detail", "places", "booking", "custom", "remark")
"""What a visitor may want: a detail of a thing, free places, a booking, a custom of the house, a remark returned."""
TOOLS: Final = ("detail", "places", "booking", "custom")
"""Kinds that take a tool; `booking` changes the world."""

CUSTOMS: Final = (
    "only before noon", "never on sundays", "with a permit", "free of charge", "behind the gate", "for members",
    "after closing", "on the ground floor",
)  # fmt: skip
"""What a custom of the house may say."""
MAKERS: Final = ("hanna", "viktor", "selma", "ruben", "ingrid", "tomas", "yusuf", "carla")
"""Values of attributes that are not numbers."""
WORDED: Final = frozenset(
    {"maker", "author", "view", "speciality", "trainer", "director", "keeper", "diet", "speaker", "captain"}
)
"""Attributes whose value is a word."""
ASKS: Final = {
    "detail": (
        "could you say which {aspect} the {thing} has",
        "{aspect} , the {thing} one",
        "i wonder about the {thing} : its {aspect}",
    ),
    "places": ("anything left at {thing} these days", "has {thing} got room for more people", "how full is {thing}"),
    "booking": (
        "put {count} of us down at {thing}",
        "{count} persons , {thing} , make it fixed",
        "we are {count} and want {thing}",
    ),
    "custom": ("what is the habit here concerning {topic}", "{topic} , how do you handle that", "am i fine with {topic}"),
    "remark": ("such a calm afternoon", "my feet are tired but happy", "never seen anything like it"),
}  # fmt: skip
"""Kind → how a visitor may put it."""
GUIDANCE: Final = (
    "you speak for this place .", "visitors see nothing but your last message .", "keep sentences short .",
    "numbers come from a source , not from memory .", "one matter after the other .",
)  # fmt: skip
"""Sentences of a house style; they ask for nothing that is scored."""
CLOSING: Final = (
    "sign off each message with = {gate}", "final words without exception = {gate}", "nobody may leave out the ending = {gate}",
    "the last thing that visitors read = {gate}",
)  # fmt: skip
OPENING: Final = (
    'first words are "{opener}" .', 'address people as "{opener}" before anything else .', 'lead in by "{opener}" .',
    'a message has to set out from "{opener}" .',
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """One place. Texts of `skills` and `tools` are in the order of `KINDS` and `TOOLS`."""

    name: str
    thing: str
    """What its things are called: the word for the parameter."""
    aspects: tuple[str, ...]
    topics: tuple[str, ...]
    things: tuple[str, ...]
    skills: tuple[str, ...]
    tools: tuple[str, ...]


def _worlds() -> tuple[World, ...]:
    document = yaml.safe_load(Path(__file__).with_name("worlds.yaml").read_text(encoding="utf-8"))
    lists = ("aspects", "topics", "things", "skills", "tools")
    return tuple(World(name, row["thing"], *(tuple(row[key]) for key in lists)) for name, row in document.items())


WORLDS: Final = _worlds()
