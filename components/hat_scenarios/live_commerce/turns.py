"""Draws the turns of an item: intent, aspect, comment or event, and the ground truth at that moment of the room.

Always holds: turns are drawn in order over a room that goes on as the right answers leave it; a comment names its
products so that they can be told apart (by name, by a part that only one has, or as the one on stage), except in the
intent `clarification`, where they cannot. Not here: which room (catalogue), what is right (plan).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hat_scenarios.base import Turn
from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.catalogue import draw_campaign
from hat_scenarios.live_commerce.plan import advance, make_plan
from hat_scenarios.live_commerce.room import Room
from hat_scenarios.live_commerce.settings import Settings

EventKind = Literal["comment", "batch", "viewer_entered", "order_placed", "item_on_sale", "rules_changed"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A drawn event before its ground truth is known. `change` is what happens to the room just before it."""

    aspect: str
    texts: tuple[str, ...] = ()
    slots: dict[str, Any] = field(default_factory=dict)
    event: EventKind = "comment"
    data: dict[str, Any] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)


def draw_turns(rng: random.Random, room: Room, count: int, settings: Settings) -> list[Turn]:
    """`count` turns in `room`, each with the room as it then is."""
    weights = settings.weights()
    intents, shares = list(weights), list(weights.values())
    turns = []
    for intent in rng.choices(intents, shares, k=count):
        draft = DRAWERS[intent](rng, room, settings)
        room = room.changed(draft.change)
        plan = make_plan(room, intent, draft.aspect, draft.slots)
        turns.append(
            Turn(
                event=draft.event,
                texts=draft.texts,
                viewers=tuple(rng.sample(words.VIEWERS, len(draft.texts))),
                data=draft.data,
                intent=intent,
                gold=plan.gold(),
                notes={"aspect": draft.aspect, "slots": draft.slots, "change": draft.change},
            )
        )
        room = advance(room, plan)
    return turns


def _mention(rng: random.Random, room: Room, settings: Settings) -> tuple[str, str]:
    """(product name, the words that name it)."""
    name = rng.choice(room.names)
    if settings.difficulty == 1:
        return name, name
    if rng.random() < 0.2:
        return room.presented, words.ON_STAGE
    noun = name.split()[-1]
    if rng.random() < 0.3 and sum(other.split()[-1] == noun for other in room.names) == 1:
        return name, noun
    return name, name


def _pushed(rng: random.Random, text: str, settings: Settings) -> str:
    return text + rng.choice(words.PUSHES) if settings.pushing and rng.random() < settings.pushing else text


def _product_qa(rng: random.Random, room: Room, settings: Settings) -> Draft:
    aspect = rng.choice(tuple(words.PRODUCT))
    text = rng.choice(words.PRODUCT[aspect])
    if aspect == "compare":
        first, second = rng.sample(room.names, 2)
        return Draft(aspect, (text.format(i=first, j=second),), {"i": first, "j": second})
    name, mention = _mention(rng, room, settings)
    return Draft(aspect, (_pushed(rng, text.format(i=mention), settings),), {"i": name})


def _discount(rng: random.Random, room: Room, settings: Settings) -> Draft:
    aspect = rng.choice(tuple(words.DISCOUNT))
    text = rng.choice(words.DISCOUNT[aspect])
    if aspect == "sale":
        return Draft(aspect, (text,))
    name, mention = _mention(rng, room, settings)
    count = str(rng.choice(words.COUNTS))
    comment = _pushed(rng, text.format(i=mention, n=count), settings)
    return Draft(aspect, (comment,), {"i": name, "n": count} if "{n}" in text else {"i": name})


def _order(rng: random.Random, room: Room, settings: Settings) -> Draft:
    aspect = rng.choice(tuple(words.ORDER))
    name = rng.choice([name for name in room.names if name != room.presented])
    return Draft(aspect, (rng.choice(words.ORDER[aspect]).format(i=name),), {"i": name})


def _faq(rng: random.Random, room: Room, settings: Settings) -> Draft:
    topic = rng.choice(tuple(room.faq))
    return Draft(topic, (rng.choice(words.FAQ_ASKS).format(f=topic),), {"f": topic})


def _aftersale(rng: random.Random, room: Room, settings: Settings) -> Draft:
    problem = rng.choice(tuple(room.rules))
    text = rng.choice(words.AFTERSALE).format(o=rng.choice(words.NOUNS), p=problem)
    return Draft(problem, (text,), {"p": problem})


def _chat(rng: random.Random, room: Room, settings: Settings) -> Draft:
    aspect = rng.choice(tuple(words.CHAT))
    return Draft(aspect, (rng.choice(words.CHAT[aspect]),))


def _clarification(rng: random.Random, room: Room, settings: Settings) -> Draft:
    nouns = [name.split()[-1] for name in room.names]
    shared = sorted({noun for noun in nouns if nouns.count(noun) > 1})
    if settings.difficulty > 1 and shared and rng.random() < 0.5:
        aspect = rng.choice(("price", "colour", "stock"))
        text = rng.choice(words.PRODUCT[aspect]).format(i=rng.choice(shared))
    else:
        text = rng.choice(words.CLARIFY)
    return Draft("which", (text,))


def _refusal(rng: random.Random, room: Room, settings: Settings) -> Draft:
    return Draft("refuse", (rng.choice(words.REFUSE),))


def _irrelevant(rng: random.Random, room: Room, settings: Settings) -> Draft:
    return Draft("spam", (rng.choice(words.SPAM),))


def _greet(rng: random.Random, room: Room, settings: Settings) -> Draft:
    viewer = rng.choice(words.VIEWERS)
    return Draft("enter", slots={"v": viewer}, event="viewer_entered", data={"viewer": viewer})


def _thanks(rng: random.Random, room: Room, settings: Settings) -> Draft:
    name = rng.choice(room.names)
    return Draft("order", slots={"i": name}, event="order_placed", data={"item": name})


def _batch(rng: random.Random, room: Room, settings: Settings) -> Draft:
    count = 2 if settings.difficulty < 3 else 3
    parts, texts = [], []
    for name in rng.sample(room.names, count):
        aspect = rng.choice(("price", "colour", "material", "size", "stock"))
        parts.append({"aspect": aspect, "i": name})
        texts.append(rng.choice(words.PRODUCT[aspect]).format(i=name))
    return Draft("several", tuple(texts), {"parts": parts}, event="batch")


def _on_sale(rng: random.Random, room: Room, settings: Settings) -> Draft:
    name = rng.choice([name for name in room.names if name != room.presented])
    return Draft("explain", slots={"i": name}, event="item_on_sale", data={"item": name})


def _rules_changed(rng: random.Random, room: Room, settings: Settings) -> Draft:
    campaign = draw_campaign(rng, room.campaign)
    change = {"campaign": campaign.model_dump(mode="json")}
    state = {**room.view(), "news": "room sale changed"}
    texts = (rng.choice(words.DISCOUNT["sale"]),)
    return Draft("sale", texts, event="rules_changed", data={"state": state}, change=change)


DRAWERS: Final[dict[str, Callable[[random.Random, Room, Settings], Draft]]] = {
    "product_qa": _product_qa,
    "chat": _chat,
    "clarification": _clarification,
    "aftersale": _aftersale,
    "discount": _discount,
    "order": _order,
    "faq": _faq,
    "refusal": _refusal,
    "greet": _greet,
    "thanks": _thanks,
    "batch": _batch,
    "irrelevant": _irrelevant,
    "on_sale": _on_sale,
    "rules_changed": _rules_changed,
}
