"""Agent sessions of other domains, each under a harness of its own: random names, phrases, layout, catalogue.

The messages are those that `hat_harness.session` would make, rendered by the same functions: load a skill, call a
tool, answer as the skill and the rules ask. Always holds: every fact of a reply stands in the tool result before it;
every harness is valid. Not here: sessions of a scenario (its expert plays them).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from hat_harness.render import render_skill, render_system, skill_quote, tool_quote
from hat_harness.spec import Activation, Harness, Prompt, Skill, Tool
from hat_scenarios.general.layouts import layout
from hat_scenarios.general.words import NUMBERS, OBJECTS, QUALITIES, VERBS, Words, names, part, phrase

Conversation = list[dict[str, Any]]
_RULES: Final = (
    "end every reply with = {gate}",
    "stop gate : a reply must finish with = {gate}",
    "replies are rejected unless they close with = {gate}",
)
_BODIES: Final = (
    'open with "{opener}" .',
    'begin the reply with "{opener}" .',
    'say "{opener}" at the start .',
)
_EXTRAS: Final = ("", " use a tool for facts .", " be brief .", " load one skill for one request .")
_ASKS: Final = (
    "please {skill} and {tool} with {items} , {quality} ?",
    "{skill} , {tool} for {items} : {quality}",
    "i need to {skill} then {tool} {items} for the {quality}",
)


def random_harness(rng: random.Random, words: Words) -> tuple[Harness, str, str]:
    """(harness, its gate phrase, its opener)."""
    free = rng.random() < 0.6
    gate, opener = phrase(rng, words, 2, 5), phrase(rng, words, 1, 3)
    taken: set[str] = set()
    body = rng.choice(_BODIES).format(opener=opener)
    skills = tuple(
        Skill(id=called, name=called, description=text, body=body + rng.choice(_EXTRAS))
        for called, text in _catalogue(rng, words, rng.randint(3, 8), taken)
    )
    tools = tuple(
        Tool(id=called, name=called, description=text, parameters=_schema(rng, words))
        for called, text in _catalogue(rng, words, rng.randint(2, 5), taken)
    )
    sections = ["skills", "tools", "rules"]
    rng.shuffle(sections)
    sections.insert(rng.choice((0, 3)), "room")
    rules = Prompt(id="rules", section="rules", text=rng.choice(_RULES).format(gate=gate))
    harness = Harness(
        name="general",
        sections=tuple(sections),
        layout=layout(rng, free),
        prompts=(rules,),
        skills=skills,
        tools=tools,
        activation=Activation(tool=names(rng, words, 1, taken)[0], parameter=part(rng, words)),
    )
    return harness, gate, opener


def _catalogue(rng: random.Random, words: Words, count: int, taken: set[str]) -> list[tuple[str, str]]:
    verbs, things = rng.sample(VERBS, count), rng.sample(OBJECTS, count)
    texts = [f"{verb} the {thing}" for verb, thing in zip(verbs, things, strict=True)]
    return list(zip(names(rng, words, count, taken), texts, strict=True))


def _schema(rng: random.Random, words: Words) -> dict[str, Any]:
    """One parameter, sometimes two."""
    wanted = 2 if rng.random() < 0.3 else 1
    found: dict[str, Any] = {}
    while len(found) < wanted:
        found[part(rng, words)] = {"type": "string"}
    return {"type": "object", "properties": found, "required": list(found)}


def session(rng: random.Random, words: Words, turns: int = 3) -> Conversation:
    """A conversation of `turns` requests under one random harness."""
    harness, gate, opener = random_harness(rng, words)
    things = [f"{part(rng, words, 0.1)} {thing}" for thing in rng.sample(OBJECTS, 4)]
    messages: Conversation = [{"role": "system", "content": render_system(harness, {"list": things})}]
    for _ in range(turns):
        messages += _exchange(rng, words, harness, things, gate, opener)
    return messages


def _exchange(
    rng: random.Random, words: Words, harness: Harness, things: Sequence[str], gate: str, opener: str
) -> Conversation:
    skill, tool = rng.choice(harness.skills), rng.choice(harness.tools)
    parameters = list(tool.parameters["properties"])
    items = rng.sample(list(things), len(parameters))
    asked, other = rng.sample(QUALITIES, 2)
    request = rng.choice(_ASKS).format(
        skill=skill.description, tool=tool.description, items=" and ".join(items), quality=asked
    )
    prefix = f"{asked} |" if rng.random() < 0.7 else ""
    messages: Conversation = [
        {"role": "user", "content": request},
        _calling(
            prefix + skill_quote(harness, skill), harness.activation.tool, {harness.activation.parameter: skill.name}
        ),
        {"role": "tool", "name": harness.activation.tool, "content": render_skill(harness, skill)},
    ]
    if rng.random() < 0.2:
        reply = f"{opener} , done . {gate}"
        return [*messages, {"role": "assistant", "content": reply, "reasoning": asked if prefix else ""}]
    values = {asked: rng.choice((rng.choice(NUMBERS), part(rng, words, 0.1))), other: rng.choice(NUMBERS)}
    shown = [asked, other] if rng.random() < 0.5 else [other, asked]
    result = f"{items[0]} : " + " , ".join(f"{quality} {values[quality]}" for quality in shown)
    note = f"{asked} {values[asked]}"
    reply = f"{opener} , the {items[0]} {asked} is {values[asked]} . {gate}"
    return [
        *messages,
        _calling(prefix + tool_quote(harness, tool), tool.name, dict(zip(parameters, items, strict=True))),
        {"role": "tool", "name": tool.name, "content": result},
        {"role": "assistant", "content": reply, "reasoning": note},
    ]


def _calling(reasoning: str, called: str, arguments: dict[str, str]) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": called, "arguments": arguments}}
    return {"role": "assistant", "content": "", "reasoning": reasoning, "tool_calls": [call]}
