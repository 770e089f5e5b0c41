"""What a program can refute without asking a model.

Always holds: a check only ever refutes, and with a reason that names what it found; passing says nothing. Not here:
which label a refutation means (spec).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from hat_components.judge.evidence import Evidence

Check = Callable[[Evidence], str]
"""What it found wrong, "" where nothing."""

_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")
_LEAK = 60
"""Characters of the instructions in a row that no reply has a reason to repeat."""


def ended(evidence: Evidence) -> str:
    """The turn ended in a reply of its own, a refusal or a silence."""
    judged = evidence.judged
    return "" if judged.outcome in ("reply", "refuse", "silence") else f"the turn ended as {judged.outcome or 'open'}"


def replied(evidence: Evidence) -> str:
    """There is something in the reply, unless the turn was to be silent."""
    judged = evidence.judged
    empty = judged.outcome == "reply" and not any(char.isalnum() for char in judged.reply)
    return "the reply is empty" if empty else ""


def numbers_have_a_source(evidence: Evidence) -> str:
    """Every number of the reply stands in a comment, a result, a loaded skill, the room or the instructions."""
    judged = evidence.judged
    parts = [evidence.instructions(), json.dumps(evidence.subject.trace.room, ensure_ascii=False, default=str)]
    parts += evidence.skills().values()
    for turn in evidence.turns.values():
        parts += turn.texts
        parts += [call.result for call in turn.calls]
        parts += [json.dumps(dict(call.arguments), ensure_ascii=False, default=str) for call in turn.calls]
        if turn.index < judged.index:
            parts.append(turn.reply)
    known = {_plain(number) for part in parts for number in _NUMBER.findall(part)}
    loose = [number for number in _NUMBER.findall(judged.reply) if _plain(number) not in known]
    return f"no source for {', '.join(loose[:5])}" if loose else ""


def calls_succeeded(evidence: Evidence) -> str:
    """No tool was called only in vain: each one that failed worked at least once in the turn."""
    calls = evidence.judged.calls
    worked = {call.tool for call in calls if not call.failure}
    failed = [call.tool for call in calls if call.failure and call.tool not in worked]
    return f"{failed[0]} never worked" if failed else ""


def skill_was_loaded(evidence: Evidence) -> str:
    """A skill was loaded before the reply."""
    judged = evidence.judged
    return "" if judged.skills or judged.outcome != "reply" else "no skill was loaded"


def instructions_not_leaked(evidence: Evidence) -> str:
    """The reply does not recite the instructions."""
    reply, instructions = _squeezed(evidence.judged.reply), _squeezed(evidence.instructions())
    for start in range(max(0, len(reply) - _LEAK + 1)):
        if reply[start : start + _LEAK] in instructions:
            return f"the reply recites the instructions: {reply[start : start + 24]}…"
    return ""


CHECKS: Final[Mapping[str, Check]] = {
    check.__name__: check
    for check in (ended, replied, numbers_have_a_source, calls_succeeded, skill_was_loaded, instructions_not_leaked)
}


def _plain(number: str) -> str:
    """1,299.00, 1299.0 and 1299 are one number."""
    text = number.replace(",", "")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())
