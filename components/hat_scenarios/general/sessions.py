"""Agent sessions of other domains, each under a harness of its own: random names, phrases, layout, catalogue.

The messages are those that `hat_harness.session` would make, rendered by the same functions: load a skill, call a
tool, answer as the skill and the rules ask. Always holds: every fact of a reply stands in the tool result before it;
every harness is valid. Not here: sessions of a scenario (its expert plays them).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hat_harness.render import render_skill, render_system, skill_quote, tool_quote
from hat_harness.spec import Activation, Harness, Prompt, Skill, Tool
from hat_scenarios.general.layouts import layout
from hat_scenarios.general.words import NUMBERS, OBJECTS, QUALITIES, TOPICS, VERBS, Topic, Words, names, part, phrase

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
_MORE: Final = (
    " and the {thing}",
    " , {verb} or {other}",
    " for the {thing} , {verb}",
    " by {verb}",
    " with a {thing}",
)
_TOPIC_ASKS: Final = (
    "{ask} for {items} , {quality} ?",
    "{quality} of {items} , {ask} please",
    "what about {ask} and {items} , which {quality}",
    "{items} : {ask} , {quality}",
)
_ASKS: Final = (
    "please {skill} and {tool} with {items} , {quality} ?",
    "{skill} , {tool} for {items} : {quality}",
    "i need to {skill} then {tool} {items} for the {quality}",
)


def random_harness(rng: random.Random, words: Words) -> tuple[Harness, str, str]:
    """(harness, its gate phrase, its opener)."""
    taken: set[str] = set()
    skills = list(zip(*_named(rng, words, rng.randint(3, 8), taken), strict=True))
    tools = list(zip(*_named(rng, words, rng.randint(2, 5), taken), strict=True))
    return _harness(rng, words, skills, tools, taken)


def topic_harness(rng: random.Random, words: Words) -> tuple[Harness, str, str, list[tuple[Topic, int, int | None]]]:
    """A harness whose catalogue says in other words what is asked for, and (topic, its skill, its tool or None)."""
    count = rng.randint(4, 10)
    topics = rng.sample(TOPICS, count)
    with_tool = sorted(rng.sample(range(count), rng.randint(2, min(count, 7))))
    taken: set[str] = set()
    texts = [f"{rng.choice(topic.skills)}{_rest(rng)}" for topic in topics]
    skills = list(zip(names(rng, words, count, taken), texts, strict=True))
    texts = [f"{rng.choice(topics[at].tools)}{_rest(rng)}" for at in with_tool]
    tools = list(zip(names(rng, words, len(texts), taken), texts, strict=True))
    found = [(topic, at, with_tool.index(at) if at in with_tool else None) for at, topic in enumerate(topics)]
    return *_harness(rng, words, skills, tools, taken), found


def _rest(rng: random.Random) -> str:
    more = rng.choice(("", *_MORE))
    verb, other = rng.sample(VERBS, 2)
    return more.format(thing=rng.choice(OBJECTS), verb=verb, other=other)


def _harness(
    rng: random.Random,
    words: Words,
    skills: Sequence[tuple[str, str]],
    tools: Sequence[tuple[str, str]],
    taken: set[str],
) -> tuple[Harness, str, str]:
    """(harness, gate, opener) around (name, description) of skills and tools."""
    gate, opener = phrase(rng, words, 2, 5), phrase(rng, words, 1, 3)
    body = rng.choice(_BODIES).format(opener=opener)
    sections = ["skills", "tools", "rules"]
    rng.shuffle(sections)
    sections.insert(rng.choice((0, 3)), "room")
    rules = Prompt(id="rules", section="rules", text=rng.choice(_RULES).format(gate=gate))
    harness = Harness(
        name="general",
        sections=tuple(sections),
        layout=layout(rng, rng.random() < 0.6),
        prompts=(rules,),
        skills=tuple(
            Skill(id=name, name=name, description=text, body=body + rng.choice(_EXTRAS)) for name, text in skills
        ),
        tools=tuple(Tool(id=name, name=name, description=text, parameters=_schema(rng, words)) for name, text in tools),
        activation=Activation(tool=names(rng, words, 1, taken)[0], parameter=part(rng, words)),
    )
    return harness, gate, opener


def _named(rng: random.Random, words: Words, count: int, taken: set[str]) -> tuple[list[str], list[str]]:
    verbs, things = rng.sample(VERBS, count), rng.sample(OBJECTS, count)
    texts = [f"{verb} the {thing}" for verb, thing in zip(verbs, things, strict=True)]
    return names(rng, words, count, taken), texts


def _schema(rng: random.Random, words: Words) -> dict[str, Any]:
    """One parameter, sometimes two."""
    wanted = 2 if rng.random() < 0.3 else 1
    found: dict[str, Any] = {}
    while len(found) < wanted:
        found[part(rng, words)] = {"type": "string"}
    return {"type": "object", "properties": found, "required": list(found)}


def session(rng: random.Random, words: Words, turns: int = 3) -> Conversation:
    """A conversation of `turns` requests under one random harness; in half of them the catalogue uses other words."""
    things = [f"{part(rng, words, 0.1)} {thing}" for thing in rng.sample(OBJECTS, 4)]
    if rng.random() < 0.5:
        harness, gate, opener = random_harness(rng, words)
        asks = [_said(rng, harness) for _ in range(turns)]
    else:
        harness, gate, opener, topics = topic_harness(rng, words)
        asks = [_meant(rng, harness, topics) for _ in range(turns)]
    messages: Conversation = [{"role": "system", "content": render_system(harness, {"list": things})}]
    for ask in asks:
        messages += _exchange(rng, words, harness, things, ask, gate, opener)
    return messages


@dataclass(frozen=True)
class _Ask:
    """A request: its text with `{items}` and `{quality}`, what it is about ("": the quality), what is called."""

    text: str
    about: str
    skill: Skill
    tool: Tool | None


def _said(rng: random.Random, harness: Harness) -> _Ask:
    """Skill and tool are asked for by their descriptions; sometimes the skill alone."""
    skill, tool = rng.choice(harness.skills), rng.choice(harness.tools)
    if rng.random() < 0.2:
        return _Ask(f"{skill.description} for {{items}} , {{quality}} ?", "", skill, None)
    text = rng.choice(_ASKS).replace("{skill}", skill.description).replace("{tool}", tool.description)
    return _Ask(text, "", skill, tool)


def _meant(rng: random.Random, harness: Harness, topics: Sequence[tuple[Topic, int, int | None]]) -> _Ask:
    """Skill and tool are asked for by a word that stands in neither description."""
    topic, skill, tool = rng.choice(topics)
    about = rng.choice(topic.asks)
    text = rng.choice(_TOPIC_ASKS).replace("{ask}", about)
    return _Ask(text, about, harness.skills[skill], None if tool is None else harness.tools[tool])


def _exchange(
    rng: random.Random, words: Words, harness: Harness, things: Sequence[str], ask: _Ask, gate: str, opener: str
) -> Conversation:
    skill, tool = ask.skill, ask.tool
    parameters = list(tool.parameters["properties"]) if tool else []
    items = rng.sample(list(things), len(parameters) or 1)
    asked, other = rng.sample(QUALITIES, 2)
    request = ask.text.format(items=" and ".join(items), quality=asked)
    prefix = f"{ask.about or asked} |"
    messages: Conversation = [
        {"role": "user", "content": request},
        _calling(
            prefix + skill_quote(harness, skill), harness.activation.tool, {harness.activation.parameter: skill.name}
        ),
        {"role": "tool", "name": harness.activation.tool, "content": render_skill(harness, skill)},
    ]
    if tool is None:
        return [*messages, {"role": "assistant", "content": f"{opener} , done . {gate}", "reasoning": asked}]
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
