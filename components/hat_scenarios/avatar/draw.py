"""Draws items: a world with its facts, the harness of its operator, one request after the other.

Always holds: item and harness follow from settings, seed, split and index; the harness is valid and its catalogue names
no two things alike. What differs from item to item: in kind `tool` the tools (names, parameters, order, further ones),
in kind `prompt` how the prompt is written (order, headings, wording, phrases). Not here: words (worlds), right or wrong
(score).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from hat_harness.spec import Activation, Harness, Layout, Limits, Prompt, Skill, Tool
from hat_scenarios.avatar import worlds
from hat_scenarios.avatar.worlds import WORLDS, World
from hat_scenarios.base import Gold, GoldCall, Turn
from hat_scenarios.general import words

_STEMS: Final = words.split(
    """
ask desk find tell view scan page open show pick keep list side lamp rain stairs notice paper steel torch tower thief
lemon petal motor wheat pupil cloud flute plaza saddle wagon comet
"""
)
_GATES: Final = ("watch the stairs", "we close at ten", "enjoy the evening", "call us anytime", "rest well tonight")
_OPENERS: Final = ("welcome", "dear visitor", "at your service", "good to see you", "listen")
_LAYOUTS: Final = (
    Layout(),
    Layout(section="== {title} ==\n{body}", skill="/{description}:{name}", tool="/{description}:{name}({parameters})"),
    Layout(section="{title}\n{body}\n", skill="*{description}>{name}", tool="*{description}>{name}({parameters})"),
    Layout(section="<<{TITLE}>>\n{body}", skill="[{description}:{name}]", tool="[{description}:{name}({parameters})]"),
    Layout(section="# {TITLE}\n{body}", skill="+{description};{name}", tool="+{description};{name}({parameters})"),
)


def draw_room(rng: random.Random, kind: str) -> dict[str, Any]:
    """The facts of one world, everything that its tools can answer from."""
    world = rng.choice(WORLDS)
    things = rng.sample(world.things, 4)
    return {
        "world": world.name,
        "kind": kind,
        "style": rng.getrandbits(48),
        "records": {thing: {aspect: _value(rng, aspect) for aspect in world.aspects} for thing in things},
        "places": {thing: rng.randint(3, 60) for thing in things},
        "customs": {topic: rng.choice(worlds.CUSTOMS) for topic in world.topics},
        "booked": {},
    }


def _value(rng: random.Random, aspect: str) -> str:
    return rng.choice(worlds.MAKERS) if aspect in worlds.WORDED else str(rng.randint(2, 399))


def world_of(room: Mapping[str, Any]) -> World:
    """The world of a room."""
    return next(world for world in WORLDS if world.name == room["world"])


def draw_turn(rng: random.Random, room: Mapping[str, Any], kind: str, named: bool) -> Turn:
    """One request and what is right; `named`: it is put in the words of the catalogue."""
    world = world_of(room)
    thing, topic = rng.choice(list(room["records"])), rng.choice(world.topics)
    aspect, count = rng.choice(world.aspects), rng.randint(2, 9)
    text = rng.choice((worlds.NAMED if named else worlds.ASKS)[kind]).format(
        thing=thing,
        topic=topic,
        aspect=aspect,
        count=count,
        skill=world.skills[worlds.KINDS.index(kind)],
        tool=world.tools[worlds.TOOLS.index(kind)] if kind in worlds.TOOLS else "",
    )
    calls: tuple[GoldCall, ...] = ()
    facts: tuple[str, ...] = ()
    state: dict[str, Any] = {}
    if kind == "detail":
        calls, facts = (GoldCall(tool=kind, arguments={"thing": thing}),), (room["records"][thing][aspect],)
    elif kind == "places":
        calls, facts = (GoldCall(tool=kind, arguments={"thing": thing}),), (str(room["places"][thing]),)
    elif kind == "booking":
        calls, facts = (GoldCall(tool=kind, arguments={"thing": thing, "count": str(count)}),), (thing, str(count))
        state = {thing: str(count)}
    elif kind == "custom":
        calls, facts = (GoldCall(tool=kind, arguments={"topic": topic}),), (room["customs"][topic],)
    notes = {"aspect": aspect if kind == "detail" else kind, "subject": topic if kind == "custom" else thing}
    gold = Gold(skill=kind, calls=calls, facts=facts, state=state)
    return Turn(texts=(text,), viewers=("visitor",), intent=kind, gold=gold, notes=notes)


def harness_of(room: Mapping[str, Any]) -> Harness:
    """The harness that the operator of this world wrote; it follows from the room alone."""
    rng = random.Random(f"avatar/style/{room['style']}")
    world, varied = world_of(room), room["kind"]
    taken: set[str] = set()
    opener, gate = rng.choice(_OPENERS), rng.choice(_GATES)
    plain = varied == "tool"
    order = ["skills", "tools", "rules"]
    if not plain:
        rng.shuffle(order)
    order.insert(0 if not plain and rng.random() < 0.5 else 3, "room")
    return Harness(
        name=f"avatar-{world.name}",
        description=f"a digital host of a {world.name}",
        sections=tuple(order),
        layout=_LAYOUTS[0] if plain else rng.choice(_LAYOUTS),
        prompts=_rules(rng, gate, plain),
        skills=_skills(rng, world, opener, taken, plain),
        tools=_tools(rng, world, taken, plain),
        activation=Activation(tool=_name(rng, taken) if plain else "open_skill", parameter="name"),
        limits=Limits(model_calls=6, tool_calls=4, output_tokens=120),
    )


def _rules(rng: random.Random, gate: str, plain: bool) -> tuple[Prompt, ...]:
    closing = worlds.CLOSING[0] if plain else rng.choice(worlds.CLOSING)
    wanted = 1 if plain else rng.randint(0, 3)
    style = " ".join(rng.sample(worlds.GUIDANCE, wanted))
    return (Prompt(id="rules", section="rules", text=f"{style}\n{closing.format(gate=gate)}".strip()),)


def _skills(rng: random.Random, world: World, opener: str, taken: set[str], plain: bool) -> tuple[Skill, ...]:
    opening = (worlds.OPENING[0] if plain else rng.choice(worlds.OPENING)).format(opener=opener)
    skills = []
    for kind, text in zip(worlds.KINDS, world.skills, strict=True):
        more = "" if plain else " ".join(["", *rng.sample(worlds.GUIDANCE, rng.randint(0, 2))])
        name = _name(rng, taken)
        skills.append(Skill(id=kind, name=name, description=text, body=opening + more))
    rng.shuffle(skills)
    return tuple(skills)


def _tools(rng: random.Random, world: World, taken: set[str], plain: bool) -> tuple[Tool, ...]:
    """The world's tools; in kind `tool` under drawn parameter names and beside tools of another world."""
    tools = []
    for kind, text in zip(worlds.TOOLS, world.tools, strict=True):
        wanted = {"booking": ["thing", "count"], "custom": ["topic"]}.get(kind, ["thing"])
        if plain and kind == "booking" and rng.random() < 0.5:
            wanted.reverse()
        seen = {name: _parameter(rng, world, name, plain) for name in wanted}
        if len(set(seen.values())) < len(seen):
            seen = {name: name for name in wanted}
        tools.append(_tool(kind, _name(rng, taken), text, seen))
    if plain and rng.random() < 0.5:
        other = rng.choice([one for one in WORLDS if one is not world])
        spare = rng.choice([text for text in other.tools if text.split()[0] not in {t.split()[0] for t in world.tools}])
        tools.append(_tool("spare", _name(rng, taken), spare, {"thing": _parameter(rng, other, "thing", plain)}))
    rng.shuffle(tools)
    return tuple(tools)


def _tool(kind: str, name: str, text: str, seen: Mapping[str, str]) -> Tool:
    schema = {
        "type": "object",
        "properties": {shown: {"type": "string"} for shown in seen.values()},
        "required": list(seen.values()),
    }
    renamed = {canonical: shown for canonical, shown in seen.items() if canonical != shown}
    free = kind != "booking"
    return Tool(
        id=kind,
        name=name,
        description=text,
        parameters=schema,
        parameter_names=renamed,
        read_only=free,
        idempotent=free,
    )


def _parameter(rng: random.Random, world: World, name: str, drawn: bool) -> str:
    if drawn and rng.random() < 0.6:
        return rng.choice(_STEMS)
    return {"thing": world.thing, "count": "number", "topic": "matter"}[name]


def _name(rng: random.Random, taken: set[str]) -> str:
    while True:
        drawn = "_".join(rng.sample(_STEMS, 2))
        if drawn not in taken:
            taken.add(drawn)
            return drawn
