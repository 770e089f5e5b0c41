"""General data: every answer follows from its question, harnesses are valid, instructions can be checked and failed."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from hat_harness.trace import Trace
from hat_harness.validate import validate
from hat_scenarios import general
from hat_scenarios.general.checks import CHECKS
from hat_scenarios.general.instructions import FAMILIES
from hat_scenarios.general.words import OBJECTS, QUALITIES, TOPICS, VERBS
from hat_scenarios.live_commerce import LiveCommerce
from hat_scenarios.live_commerce.words import base_words

HELD_OUT = frozenset(word for pool in LiveCommerce().vocabulary(held_out=True).names.values() for word in pool)
PLAIN = tuple(word for word in base_words() if word.isalpha())
WORDS = general.Words.of((*PLAIN, *sorted(HELD_OUT)), (" luma", "_kit", "ter", "ab", " red", "_mug", "go"))
STRICT = general.Words.of(WORDS.words, WORDS.pieces, HELD_OUT)


def drawn(kind: Any, count: int = 60, words: general.Words = WORDS, seed: int = 3) -> list[general.Conversation]:
    rng = random.Random(seed)
    return [general.stream(kind, rng, words) for _ in range(count)]


@pytest.mark.parametrize("kind", general.KINDS)
def test_the_same_random_state_gives_the_same_conversations(kind: Any) -> None:
    assert drawn(kind) == drawn(kind)
    assert drawn(kind) != drawn(kind, seed=4)
    assert len({str(conversation) for conversation in drawn(kind)}) > 50


def test_copies_stand_in_their_questions() -> None:
    for question, answer in drawn("copy", 200):
        assert answer["content"] in question["content"]
        assert answer["content"]


def test_lookups_quote_the_line_and_call_its_name() -> None:
    for conversation in drawn("lookup"):
        prompt = conversation[0]["content"]
        for question, answer in zip(conversation[1::2], conversation[2::2], strict=True):
            name = answer["tool_calls"][0]["function"]["name"]
            described, line = answer["reasoning"].split(name)[0], answer["reasoning"]
            assert line in prompt
            assert line.endswith(name)
            assert any(ask in question["content"] for ask in (described[:-1], described[:-2], described[:-4]))


def test_sessions_follow_their_own_harness() -> None:
    for conversation in drawn("session"):
        prompt = conversation[0]["content"]
        assert [message["role"] for message in conversation[:3]] == ["system", "user", "assistant"]
        for at, message in enumerate(conversation):
            if message["role"] == "assistant" and message.get("tool_calls"):
                called = message["tool_calls"][0]["function"]
                assert called["name"] in prompt
                assert message["reasoning"].split(" |")[-1] in prompt
                assert conversation[at + 1]["role"] == "tool"
            elif message["role"] == "assistant":
                opened = [
                    m["content"].split('"')[1] for m in conversation[:at] if m["role"] == "tool" and '"' in m["content"]
                ]
                assert message["content"].startswith(opened[-1] + " ,")
                assert "= " + message["content"].rsplit(" . ", 1)[1] in prompt


def test_half_of_the_sessions_ask_in_words_that_no_line_has() -> None:
    asked = {word for topic in TOPICS for word in topic.asks}
    found = [c for c in drawn("session", 200) if c[2]["reasoning"].split(" |")[0] in asked]
    assert 60 < len(found) < 140
    for conversation in found:
        prompt = conversation[0]["content"]
        for message in conversation:
            about, bar, line = str(message.get("reasoning", "")).partition(" |")
            if bar:
                topic = next(topic for topic in TOPICS if about in topic.asks)
                assert re.search("[a-z]+", line)[0] in (*topic.skills, *topic.tools)
                assert line in prompt
                assert not re.search(rf"\b{about}\b", line)


def test_topics_share_no_word_with_each_other_or_what_is_held_out() -> None:
    words = [word for topic in TOPICS for word in (*topic.asks, *topic.skills, *topic.tools)]
    phrases = LiveCommerce().vocabulary(held_out=True)
    assert len(set(words)) == len(words)
    assert not set(words) & {*OBJECTS, *VERBS, *QUALITIES, *HELD_OUT}
    assert not set(words) & set(" ".join((*phrases.gates, *phrases.openers)).split())


def test_random_harnesses_are_valid() -> None:
    rng = random.Random(8)
    for _ in range(60):
        harness, gate, opener = general.random_harness(rng, WORDS)
        assert list(validate(harness)) == []
        assert gate in harness.prompts[0].text
        assert all(opener in skill.body for skill in harness.skills)


@pytest.mark.parametrize("kind", general.KINDS)
def test_words_to_avoid_never_come_up(kind: Any) -> None:
    for conversation in drawn(kind, 120, STRICT):
        text = str(conversation)
        for mark in "_{}[]()<>|:\"'\\/.,;+-#@%!&~*":
            text = text.replace(mark, " ")
        assert not set(text.split()) & HELD_OUT


def test_a_thousand_instructions_pass_their_own_checks() -> None:
    items = list(general.instructions(9140, 1500, STRICT))
    assert len({item.prompt for item in items}) == len({item.id for item in items}) == 1500
    assert set(Counter(item.family for item in items)) == set(FAMILIES)
    assert {check.family for item in items for check in item.checks} == set(CHECKS)
    assert all(all(general.verify(item, item.answer)) for item in items)
    assert list(general.instructions(9140, 100, STRICT)) == items[:100]


def test_too_few_words_are_refused_rather_than_waited_for() -> None:
    with pytest.raises(ValueError, match="words to choose from"):
        general.stream("instruction", random.Random(1), general.Words.of(("can", "one", "last")))


def test_wrong_answers_fail() -> None:
    items = list(general.instructions(5, 400, STRICT))
    for item, other in pairwise(items):
        assert not any(general.verify(item, ""))
        if item.family != "avoid" and item.answer != other.answer:
            assert not all(general.verify(item, other.answer))
        if item.family not in ("capital", "join", "say", "avoid", "last", "first", "after", "count"):
            turned = " ".join(reversed(item.answer.split()))
            assert turned == item.answer or item.family == "repeat" or not all(general.verify(item, turned))
        for check in item.checks:
            if check.family == "lacks":
                assert not all(general.verify(item, f"{check.arguments[0]} {item.answer}"))
    failed = Counter(
        check.family
        for item, other in pairwise(items)
        for check, passed in zip(item.checks, general.verify(item, other.answer), strict=True)
        if not passed
    )
    assert set(failed) | {"lacks"} == set(CHECKS)


def test_traces_are_not_general_data() -> None:
    """General sessions are rendered as real sessions are: their messages fit the shape that traces hold."""
    keys = {"role", "content", "reasoning", "tool_calls", "name"}
    assert all(set(message) <= keys for conversation in drawn("session") for message in conversation)
    assert "segments" in Trace.model_fields
