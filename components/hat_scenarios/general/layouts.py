"""Random layouts for general data: how sections and catalogue lines are written.

Always holds: description first, one separator, then the name, without a space before it: what a small model reads by
induction. The separators `|`, `^` and `=` never come up, so that a suite may test on them. Not here: the layouts that
augmentation trains and holds out (hat_harness.augment).
"""

from __future__ import annotations

import random
from typing import Final

from hat_harness.spec import Layout

_SECTIONS: Final = (
    "# {title}\n{body}",
    "<{title}>\n{body}\n</{title}>",
    "{TITLE}\n{body}",
    "[{title}]\n{body}",
    "{title} :\n{body}",
    "-- {title} --\n{body}",
    "({TITLE})\n{body}",
    "@{title}\n{body}\n@end",
    "{title} {{\n{body}\n}}",
    '{{"{title}": [{body}]}}',
)
_BEFORE: Final = ("", "*", "<", '{{"', "-", "+", "#", "@", "%", "!", "&", "(", "~", "[", "/")
_BETWEEN: Final = (":", ">", '": "', "[", "]", "+", "#", "@", "%", "&", "~", "(", "<", "!", ";", ",")
_AFTER: Final = ("", "", "", "", ">", "]", ")", ";", "!", '"}}', "#")
_JOINS: Final = ("\n", "\n", "\n", " , ", " ; ")
USUAL: Final = (
    Layout(),
    Layout(
        section="<{title}>\n{body}\n</{title}>",
        skill="<{description}>{name}",
        tool="<{description}>{name}({parameters})",
    ),
    Layout(
        section='{{"{title}": [{body}]}}',
        skill='{{"{description}": "{name}"}}',
        tool='{{"{description}": "{name}({parameters})"}}',
        join=", ",
    ),
    Layout(section="{TITLE}\n{body}", skill="-{description}[{name}]", tool="-{description}[{name}({parameters})]"),
)
"""Layouts that people write."""


def layout(rng: random.Random, free: bool) -> Layout:
    """One of the usual layouts, or with `free` any combination of marks."""
    if not free:
        return rng.choice(USUAL)
    before, between, after = rng.choice(_BEFORE), rng.choice(_BETWEEN), rng.choice(_AFTER)
    return Layout(
        section=rng.choice(_SECTIONS),
        skill=f"{before}{{description}}{between}{{name}}{after}",
        tool=f"{before}{{description}}{between}{{name}}({{parameters}}){after}",
        join=rng.choice(_JOINS),
    )
