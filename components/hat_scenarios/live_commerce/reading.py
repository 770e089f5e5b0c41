"""What a harness says about replies: the phrase that opens them and the phrase that closes them.

A phrase can stand in two places, which a consistent harness keeps equal: where the model reads it (a skill's body
quotes the opener, a prompt part states the gate after `=`), and where it is enforced (hook arguments `opener`,
`gate`). The scripted expert reads the first, scores the second. Always holds: reading changes nothing and never
fails; "" means that the harness asks for no such phrase. Not here: which skill a turn needs (plan).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hat_harness.spec import Harness, Skill

_QUOTED: Final = re.compile(r'["“「]([^"”」\n]+)["”」]')
_GATE: Final = re.compile(r"[=＝] *([^\n]*[^\s\n])")


@dataclass(frozen=True, slots=True)
class Phrases:
    """How a reply must open and close."""

    opener: str = ""
    gate: str = ""


def skill_by_id(harness: Harness, identifier: str) -> Skill | None:
    """The skill with this canonical id, or None."""
    return next((skill for skill in harness.skills if skill.id == identifier), None)


def stated(harness: Harness, skill: str) -> Phrases:
    """The phrases as the model reads them, when it has activated the skill with canonical id `skill`."""
    found = skill_by_id(harness, skill)
    rules = "\n".join(part.text for part in harness.prompts)
    # A harness without skills states the opener in its rules, quoted as skill bodies do.
    opener = _QUOTED.search(found.body if found else "" if harness.skills else rules)
    gate = _GATE.search(rules)
    return Phrases(opener.group(1) if opener else "", gate.group(1) if gate else "")


def enforced(harness: Harness, skill: str) -> Phrases:
    """The phrases that hold: hook arguments first, what the model reads where no hook says."""
    arguments: dict[str, str] = {}
    for hook in harness.hooks:
        arguments.update(hook.arguments)
    texts = stated(harness, skill)
    return Phrases(arguments.get("opener", texts.opener), arguments.get("gate", texts.gate))
