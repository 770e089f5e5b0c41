"""Prompts of general data: a conversation up to a point where the assistant writes.

Always holds: the prompts of step n follow from the seed and n alone; held-out words never come up. Not here: replies.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import get_args

from hat_components.model.codec import Codec
from hat_components.model.general import general_words, words_in
from hat_components.opd.config import Config
from hat_components.scenarios import load
from hat_scenarios import general

_ORDER = tuple(reversed(get_args(general.Kind)))


def words_of(config: Config, codec: Codec) -> general.Words:
    """Words that prompts are written with: none that the scenario holds out."""
    if not config.scenario:
        return general_words(codec)
    scenario = load(config.scenario, config.scenario_settings)
    return general_words(codec, words_in(scenario.vocabulary(True)) - words_in(scenario.vocabulary(False)))


class Prompts:
    """Draws prompts."""

    def __init__(self, shares: Mapping[general.Kind, float], codec: Codec, words: general.Words, seed: int) -> None:
        self._kinds = sorted(shares, key=_ORDER.index)  # a config's digest says nothing of the order of a mapping
        self._weights = [shares[kind] for kind in self._kinds]
        self._codec, self._words, self._seed = codec, words, seed

    def of(self, step: int, count: int, longest: int) -> list[tuple[int, ...]]:
        """`count` prompts of at most `longest` tokens; longer draws are thrown away."""
        rng = random.Random(f"{self._seed}/opd/{step}")
        found: list[tuple[int, ...]] = []
        while len(found) < count:
            (kind,) = rng.choices(self._kinds, self._weights)
            messages = general.stream(kind, rng, self._words)
            written = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
            ids = self._codec.encode_prefix(messages[: rng.choice(written)])
            if len(ids) <= longest:
                found.append(tuple(ids))
        return found
