"""From what a member wrote to labels, or to the reason why there are none.

Always holds: a label is only taken from a JSON object that carries this case's code; text around it, code fences and
labels in other words are understood and flagged; anything else is a reason from the closed list. Nothing is guessed
from prose. Not here: asking again (members), counting (panel).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hat_components.judge.rubric import Criterion

Reason = Literal[
    "empty",
    "prose",
    "truncated",
    "malformed",
    "no_case_code",
    "injected",
    "ambiguous",
    "unknown_label",
    "other_language",
    "no_label",
    "refused",
    "timeout",
    "rate_limit",
    "server",
    "unavailable",
    "budget",
    "no_truth",
    "no_answer",
    "tie",
    "split",
    "no_quorum",
]
"""Why there is no label. From `empty` to `no_label`: of the text; to `budget`: of the endpoint; then of the panel."""
Flag = Literal["fenced", "wrapped", "other_words", "asked_again", "no_structured_output"]
"""What was put up with on the way to a label."""
_MOST = 64
"""JSON objects looked at in one answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one text says of each criterion."""

    labels: Mapping[str, str] = field(default_factory=dict)
    rationales: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    """Criterion → why it has no label; together with `labels` it covers every criterion."""
    flags: tuple[Flag, ...] = ()

    @property
    def complete(self) -> bool:
        """Every criterion has a label."""
        return not self.reasons


def read_verdict(
    text: str, criteria: tuple[Criterion, ...], code: str, *, cut_off: bool = False, seen: str = ""
) -> Answer:
    """The labels in `text`. cut_off: the output ended at its limit; seen: all that the member could have copied from."""
    found, flags, reason = read_object(text, code, "verdicts", cut_off=cut_off, seen=seen)
    if found is None:
        return Answer(reasons={one.name: reason or "malformed" for one in criteria}, flags=flags)
    verdicts = found["verdicts"]
    if not isinstance(verdicts, Mapping):
        return Answer(reasons={one.name: "malformed" for one in criteria}, flags=flags)
    labels: dict[str, str] = {}
    reasons: dict[str, Reason] = {}
    rationales: dict[str, str] = {}
    for one in criteria:
        given = verdicts.get(one.name)
        word = given.get("label") if isinstance(given, Mapping) else given
        if isinstance(given, Mapping):
            rationales[one.name] = str(given.get("rationale", ""))[:2000]
        label, own = _label(one, word)
        if label is None:
            reasons[one.name] = _no_label(word)
            continue
        labels[one.name] = label
        if not own and "other_words" not in flags:
            flags = (*flags, "other_words")
    return Answer(labels, rationales, reasons, flags)


def read_object(
    text: str, code: str, key: str, *, cut_off: bool = False, seen: str = ""
) -> tuple[Mapping[str, Any] | None, tuple[Flag, ...], Reason | None]:
    """The one JSON object with this case's code and `key`; else None and the reason."""
    objects, broken = _objects(text, key)
    shaped = [(raw, one) for raw, one in objects if key in one]
    mine = [(raw, one) for raw, one in shaped if str(one.get("case", "")).strip() == code]
    if mine:
        values = {json.dumps(one[key], sort_keys=True, ensure_ascii=False) for _, one in mine}
        if len(values) > 1:
            return None, (), "ambiguous"
        return mine[-1][1], _around(text, mine[-1][0]), None
    if shaped:
        copied = any(_squeezed(raw) in _squeezed(seen) for raw, _ in shaped)
        return None, (), "injected" if copied else "no_case_code"
    if not text.strip():
        return None, (), "truncated" if cut_off else "empty"
    if cut_off or broken:
        return None, (), "truncated"
    return None, (), "malformed" if objects else "prose"


def _objects(text: str, key: str) -> tuple[list[tuple[str, Mapping[str, Any]]], bool]:
    """The outermost JSON objects of a text, and whether one that looks like an answer begins and never ends."""
    decoder = json.JSONDecoder()
    found: list[tuple[str, Mapping[str, Any]]] = []
    at, broken, looked = text.find("{"), False, 0
    while at >= 0 and looked < _MOST:
        looked += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            broken = broken or '"case"' in text[at:] or f'"{key}"' in text[at:]
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            found.append((text[at:end], value))
        at = text.find("{", end)
    return found, broken


def _around(text: str, raw: str) -> tuple[Flag, ...]:
    rest = text.replace(raw, "", 1).strip()
    if not rest:
        return ()
    return ("fenced",) if rest.strip("`").strip() in ("", "json", "JSON") else ("wrapped",)


def _label(criterion: Criterion, word: Any) -> tuple[str | None, bool]:
    if isinstance(word, bool):
        word = str(word).lower()
    if isinstance(word, int | float):
        exact = [level.label for level in criterion.levels if level.score == word]
        return (exact[0], False) if exact else (None, False)
    understood = criterion.understand(word) if isinstance(word, str) else None
    return understood if understood is not None else (None, False)


def _no_label(word: Any) -> Reason:
    if word is None or word == "":
        return "no_label"
    return "other_language" if isinstance(word, str) and not word.isascii() else "unknown_label"


def _squeezed(text: str) -> str:
    return "".join(text.split())
