"""Which of two replies to the same event is better: asked in both orders, counted only where both agree.

Always holds: a win counts only when the member names the same reply in both orders; naming the same place twice is
position bias, counted apart and a tie; what could not be judged in either order is missing with its reason.
Not here: blind preference by people (labels), scores by criterion (panel).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from hat_components.judge import prompt
from hat_components.judge.chat import Chat, Refusal
from hat_components.judge.evidence import Evidence
from hat_components.judge.members import EndpointJudge
from hat_components.judge.panel import Panel
from hat_components.judge.rubric import Record
from hat_components.judge.subject import Subject
from hat_components.judge.verdict import read_object
from hat_components.step import InputError
from hat_harness.digest import digest_bytes
from hat_stats.agreement import proportion
from hat_stats.significance import mcnemar_p

Winner = Literal["a", "b", "tie"]
_PLACES = ("first", "second", "tie")


class Pair(Record):
    """Two replies to the same event; the turns before may differ."""

    id: str
    a: Subject
    b: Subject


class Preference(Record):
    """What the panel prefers. One line of `preferences.jsonl`."""

    id: str
    intent: str = ""
    winner: Winner | Literal[""] = ""
    """"" where it could not be judged."""
    reason: str = ""
    """Why it could not be judged."""
    swayed: int = 0
    """Members that named the same place in both orders."""
    votes: dict[str, str] = Field(default_factory=dict)
    """Member → a, b, tie, or the reason in brackets."""
    rationales: tuple[str, ...] = ()


class PreferenceSummary(Record):
    """All pairs together."""

    a: int
    b: int
    tie: int
    missing: dict[str, int]
    """Reason → pairs."""
    share_a: float | None
    """Wins of a among decided pairs; None where none is."""
    low: float
    high: float
    """95 % interval of share_a, the missing pairs included at their extremes."""
    p: float
    """Two-sided sign test of a against b over decided pairs."""
    swayed: float
    """Share of asked pairs and members that named the same place in both orders: position bias."""


def compare_all(panel: Panel, pairs: Sequence[Pair]) -> Iterator[Preference]:
    """One preference per pair, in order. InputError for a judge without endpoint members."""
    asked = [member for member in panel.members if isinstance(member, EndpointJudge)]
    if not asked:
        raise InputError("nobody of this judge can compare", place=panel.judge.name, cure="give it an endpoint member")
    futures = [
        [(member.name, panel.chats[member.name].pool.submit(_ask_twice, panel, member.name, pair)) for member in asked]
        for pair in pairs
    ]
    for pair, row in zip(pairs, futures, strict=True):
        yield _decide(pair, {name: future.result() for name, future in row})


def summarise(preferences: Sequence[Preference]) -> PreferenceSummary:
    """Counts, interval and sign test."""
    wins = Counter(one.winner for one in preferences if one.winner)
    missing = Counter(one.reason for one in preferences if not one.winner)
    decided = wins["a"] + wins["b"]
    share = proportion(wins["a"], decided, missing=sum(missing.values()))
    asked = sum(len(one.votes) for one in preferences)
    return PreferenceSummary(
        a=wins["a"],
        b=wins["b"],
        tie=wins["tie"],
        missing=dict(sorted(missing.items())),
        share_a=share.value,
        low=share.low,
        high=share.high,
        p=mcnemar_p(wins["a"], wins["b"]),
        swayed=sum(one.swayed for one in preferences) / asked if asked else 0.0,
    )


class _Voice(Record):
    """One member on one pair."""

    winner: Winner | Literal[""] = ""
    reason: str = ""
    swayed: bool = False
    rationales: tuple[str, ...] = ()


def _ask_twice(panel: Panel, member: str, pair: Pair) -> _Voice:
    chat, places, rationales = panel.chats[member], [], []
    for first, second in ((pair.a, pair.b), (pair.b, pair.a)):
        place, said = _ask(panel, chat, pair, first, second)
        if place not in _PLACES:
            return _Voice(reason=place)
        places.append(place)
        rationales.append(said)
    there, back = places
    if there == back and there != "tie":
        return _Voice(winner="tie", swayed=True, rationales=tuple(rationales))
    named = {("first", "second"): "a", ("second", "first"): "b"}.get((there, back), "tie")
    return _Voice.model_validate({"winner": named, "rationales": tuple(rationales)})


def _ask(panel: Panel, chat: Chat, pair: Pair, first: Subject, second: Subject) -> tuple[str, str]:
    """(place or reason, rationale) for one order."""
    views = [Evidence(first), Evidence(second)]
    salt = f"{panel.judge.digest}\x1f{views[0].fence}\x1f{views[1].fence}"
    code = digest_bytes(salt.encode())[7:15]
    rubric = panel.judge.rubric
    system = prompt.PAIR_SYSTEM.format(scene=rubric.scene, criteria=prompt.criteria_text(rubric.criteria), code=code)
    shown = [
        view.fenced(f"{name} reply, turn {view.judged.index}", view.turn_text(view.judged, results=True))
        for name, view in zip(("first", "second"), views, strict=True)
    ]
    instructions = views[0].fenced("instructions", views[0].instructions())
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join([instructions, *shown])}]
    answered = chat.complete(messages, schema=prompt.pair_schema(code))
    if isinstance(answered, Refusal):
        return answered.reason, ""
    found, _, reason = read_object(answered.text, code, "winner", cut_off=answered.cut_off, seen=messages[1]["content"])
    if found is None:
        return reason or "malformed", ""
    place = str(found["winner"]).strip().lower()
    return (place if place in _PLACES else "unknown_label"), str(found.get("rationale", ""))[:2000]


def _decide(pair: Pair, voices: dict[str, _Voice]) -> Preference:
    """Majority of the members that could judge; an even split is a tie."""
    heard = [voice.winner for voice in voices.values() if voice.winner]
    votes = {name: voice.winner or f"({voice.reason})" for name, voice in voices.items()}
    swayed = sum(voice.swayed for voice in voices.values())
    said = tuple(text for voice in voices.values() for text in voice.rationales if text)
    if not heard:
        reason = Counter(voice.reason for voice in voices.values()).most_common(1)[0][0]
        return Preference(id=pair.id, intent=pair.a.intent, reason=reason, votes=votes, rationales=said)
    winner, count = Counter(heard).most_common(1)[0]
    winner = winner if 2 * count > len(heard) else "tie"
    return Preference(id=pair.id, intent=pair.a.intent, winner=winner, swayed=swayed, votes=votes, rationales=said)
