"""Texts that the tokenizer is trained on: general conversations, and a scenario's rooms, comments, results and words.

Always holds: the same seed gives the same texts in the same order. Not here: training of the tokenizer.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hat_components.data import Trajectory, read_records, require
from hat_components.model.codec import assistant_text
from hat_components.model.general import words_in
from hat_harness.events import ToolRequest
from hat_harness.render import room_lines
from hat_scenarios import general
from hat_scenarios.base import Scenario
from hat_scenarios.general.words import NUMBERS, OBJECTS, QUALITIES, TOPICS, VERBS

SAMPLE = 300
"""Items whose words count as words of the scenario."""
COMMON = 20
"""How often a word must be spoken to count; parts of random names are not."""


def corpus_words(scenario: Scenario | None, seed: int = 1, spoken: Sequence[str] = ()) -> list[str]:
    """Words of names, phrases, descriptions, rooms, comments and of the texts `spoken`, held-out ones included: a
    pre-trained model knows every word, and one that is whole in each place is copied in one piece."""
    found = {*OBJECTS, *VERBS, *QUALITIES}
    found |= {word for topic in TOPICS for word in (*topic.asks, *topic.skills, *topic.tools)}
    if scenario is not None:
        for held_out in (False, True):
            found |= words_in(scenario.vocabulary(held_out))
        for text in scenario_texts(scenario, seed, SAMPLE):
            found |= set(re.findall(r"[a-z]{2,}", text))
    counts = Counter(word for text in spoken for word in re.findall(r"[a-z]{2,}", text))
    found |= {word for word, count in counts.items() if count >= COMMON}
    return sorted(word for word in found if word.isascii() and word.isalpha())


def corpus_texts(scenario: Scenario | None, seed: int, count: int, words: Sequence[str]) -> Iterator[str]:
    """Texts in a fixed order; `count` items of the scenario and conversations of each general kind."""
    rng = random.Random(f"{seed}/corpus")
    known = general.Words.of(tuple(words))
    for _ in range(count):
        for kind in general.KINDS:
            yield from message_texts(general.stream(kind, rng, known))
    for number in NUMBERS:
        yield from (f" {number}", number)
    if scenario is not None:
        yield from scenario_texts(scenario, seed, count)


def trajectory_texts(inputs: Mapping[str, Path], name: str, count: int) -> list[str]:
    """Texts of the first `count` trajectories of each split of the dataset given as input `name`."""
    folder, manifest = require(inputs, name, kind="trajectories", purposes=("training",))
    found: list[str] = []
    for split in manifest.splits:
        for trajectory in islice(read_records(folder, Trajectory, split), count):
            found += message_texts(trajectory.messages)
    return found


def message_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What stands in the messages, without control tokens."""
    for message in messages:
        if message["role"] == "assistant":
            text = assistant_text(message)
            for mark in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
                text = text.replace(mark, "\n")
            yield text
        else:
            yield str(message.get("content") or "")


def scenario_texts(scenario: Scenario, seed: int, count: int) -> Iterator[str]:
    """Rooms, comments, tool results, facts, descriptions and phrases of a scenario."""
    for vocabulary in (scenario.vocabulary(False), scenario.vocabulary(True)):
        phrases = [*vocabulary.gates, *vocabulary.openers, *(text for _, text in vocabulary.distractors)]
        phrases += [text for pool in vocabulary.descriptions.values() for text in pool]
        for phrase in phrases:
            yield from (phrase, f' "{phrase}"') * 20
    for letter in scenario.vocabulary(False).letters:
        yield from (letter,) * COMMON * 5
    for item in scenario.items(seed, "train", count):
        yield "\n".join(room_lines(scenario.room_view(item)))
        backend = scenario.backend(item)
        for number, turn in enumerate(item.turns):
            yield from turn.texts
            yield from turn.gold.facts
            for index, call in enumerate(turn.gold.calls):
                request = ToolRequest(f"{number}.{index}", call.tool, call.arguments)
                yield backend.call(item.id, request).content
