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
    "not in the morning", "once in a season", "with a ticket", "with a guide", "at the gate", "after the event",
    "for the family", "in the garden",
)  # fmt: skip
"""What a custom of the house may say."""
MAKERS: Final = ("riley", "quinn", "robin", "jasper", "orla", "kira", "lee", "sasha")
"""Values of attributes that are not numbers."""
WORDED: Final = frozenset({"painter", "author", "captain", "speaker", "writer", "rider"})
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
"""Kind → how a visitor may put it in words of their own."""
NAMED: Final = {
    "detail": (
        "i want {skill} then {tool} : {thing} , which {aspect}",
        "today {skill} . {tool} , {thing} , the {aspect}",
    ),
    "places": ("i want {skill} then {tool} : {thing}", "today {skill} . {tool} , {thing} , how many"),
    "booking": (
        "i want {skill} then {tool} : {thing} , {count} of us",
        "today {skill} . {tool} , {thing} , {count} of us",
    ),
    "custom": ("i want {skill} then {tool} : {topic}", "today {skill} . {tool} , the {topic}"),
    "remark": ("{skill} , no more", "today {skill}"),
}  # fmt: skip
"""The same in the words of the catalogue, for models whose vocabulary knows no paraphrase."""
GUIDANCE: Final = (
    "you speak for this place .", "the last message is what one can read .", "short and clear is best .",
    "there is no number but from a source .", "one subject after the other .",
)  # fmt: skip
"""Sentences of a house style; they ask for nothing that is scored."""
CLOSING: Final = (
    "at the end of all you say = {gate}", "the last sentence is ever = {gate}", "say it before you leave = {gate}",
    "at last the visitor is to read = {gate}",
)  # fmt: skip
OPENING: Final = (
    'at first place "{opener}" .', 'greet with "{opener}" before facts .', 'let "{opener}" lead the message .',
    'present it after "{opener}" .',
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
