"""Layouts that the markup operator draws: four trained ones, a grammar of trained punctuation, two held out, and
separators that nothing else uses.

Always holds: every layout's templates render for any texts; the held-out ones are new combinations of punctuation
that general data has in the separator role; the separators of `UNSEEN` occur in no other layout.
Not here: rendering (hat_harness.render).
"""

from __future__ import annotations

from random import Random

from hat_harness.augment.operators import LayoutMode
from hat_harness.spec import Layout


def layout(before: str, between: str, after: str, section: str, join: str = "\n", name_first: bool = False) -> Layout:
    """A layout from its marks: `before` a line, `between` description and name, `after` the line."""
    before, between, after = (mark.replace("{", "{{").replace("}", "}}") for mark in (before, between, after))
    one, two = ("{name}", "{description}") if name_first else ("{description}", "{name}")
    called = "{name}({parameters})"
    return Layout.model_construct(
        section=section,
        skill=f"{before}{one}{between}{two}{after}",
        tool=before + one.replace("{name}", called) + between + two.replace("{name}", called) + after,
        join=join,
        result="{result}",
        tools="inline",
    )


TRAINED = (
    layout("*", ":", "", "# {title}\n{body}"),
    layout("<", ">", "", "<{title}>\n{body}\n</{title}>"),
    layout('{"', '": "', '"}', '{{"{title}": [{body}]}}', join=", "),
    layout("-", "[", "]", "{TITLE}\n{body}"),
)
HELD_OUT = (
    layout("/", "~", ";", "-- {title} --\n{body}"),
    layout("/", "&", "", "({TITLE})\n{body}"),
)
UNSEEN = (
    layout("$", "|", "", "|| {title} ||\n{body}"),
    layout("$", "^", "^", "^^ {TITLE}\n{body}"),
    layout("", "=", " $", "== {title} ==\n{body}", join=" | "),
)

_BEFORE = ("", "*", "<", '{"', "-", "+", "#", "@", "%", "!", "&", "(", "~", "[")
_BETWEEN = (":", ">", '": "', "[", "]", "+", "#", "@", "%", "&", "~", "(", "<", "!")
_AFTER = ("", "", ">", "]", ")", ";", "!", '"}', "#")
_SECTION = (
    "# {title}\n{body}",
    "<{title}>\n{body}\n</{title}>",
    "{TITLE}\n{body}",
    "[{title}]\n{body}",
    "{title} :\n{body}",
    "-- {title} --\n{body}",
    "({TITLE})\n{body}",
    "@{title}\n{body}\n@end",
    "{title} {{\n{body}\n}}",
)
_JOIN = ("\n", "\n", "\n", " , ", " ; ")

ENVELOPES_TRAINED = ("{result}", "result : {result}", "<result>{result}</result>", "[{result}]", "-> {result}")
ENVELOPES_HELD_OUT = ("answer = {result}", "(( {result} ))")


def drawn_layout(rng: Random, mode: LayoutMode, name_first: float) -> Layout:
    """A layout of the given sort; only the grammar may put names first."""
    if mode == "grammar":
        first = rng.random() < name_first
        return layout(
            rng.choice(_BEFORE),
            rng.choice(_BETWEEN),
            rng.choice(_AFTER),
            rng.choice(_SECTION),
            rng.choice(_JOIN),
            first,
        )
    return rng.choice({"trained": TRAINED, "held_out": HELD_OUT, "unseen": UNSEEN}[mode])
