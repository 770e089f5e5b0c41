"""Copying and looking up: the two skills that reading a harness is made of.

Always holds: the answer stands in the question word for word. Not here: agent sessions (sessions).
"""

from __future__ import annotations

import random
from typing import Any, Final

from hat_harness.render import render_system, tool_quote
from hat_harness.spec import Harness, Tool
from hat_scenarios.general.layouts import layout
from hat_scenarios.general.words import NUMBERS, OBJECTS, VERBS, Words, name, names, part

Conversation = list[dict[str, Any]]
_ASKS: Final = ("repeat : ", "= ", '"', "copy ")
_LOOKUPS: Final = ("{} ?", "which one can {}", "name to {}")


def copy(rng: random.Random, words: Words) -> Conversation:
    """A run of random pieces, or of random names, words and numbers, to be repeated."""
    draw = rng.random()
    if draw < 0.42 and words.pieces:
        text = "".join(rng.choice(words.pieces) for _ in range(rng.randint(6, 24))).strip()
    elif draw < 0.7:
        text = " ".join(
            rng.choice((name(rng, words), part(rng, words), rng.choice(NUMBERS))) for _ in range(rng.randint(3, 10))
        )
    else:
        text = " ".join(
            f"{rng.choice(words.words)}_{rng.choice(words.words)}" if rng.random() < 0.5 else rng.choice(words.words)
            for _ in range(rng.randint(8, 24))
        )
    return [{"role": "user", "content": rng.choice(_ASKS) + text}, {"role": "assistant", "content": text}]


def lookup(rng: random.Random, words: Words) -> Conversation:
    """A list of described tools, then a question for each: quote the line, call the tool."""
    count = rng.randint(4, 10)
    wanted = [
        f"{verb} the {thing}" for verb, thing in zip(rng.sample(VERBS, count), rng.sample(OBJECTS, count), strict=True)
    ]
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools = tuple(
        Tool(id=called, name=called, description=text, parameters=schema)
        for called, text in zip(names(rng, words, count, set()), wanted, strict=True)
    )
    lines = layout(rng, rng.random() < 0.6)
    # Without parameters the name is all that follows the description, so the line is written as a skill's.
    harness = Harness(
        name="lookup", sections=("tools",), tools=tools, layout=lines.model_copy(update={"tool": lines.skill})
    )
    messages: Conversation = [{"role": "system", "content": render_system(harness, {})}]
    for tool in rng.sample(tools, count):
        call = {"type": "function", "function": {"name": tool.name, "arguments": {}}}
        messages.append({"role": "user", "content": rng.choice(_LOOKUPS).format(tool.description)})
        messages.append(
            {"role": "assistant", "content": "", "reasoning": tool_quote(harness, tool), "tool_calls": [call]}
        )
    return messages
