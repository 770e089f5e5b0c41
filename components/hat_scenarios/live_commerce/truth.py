"""Telling true results from broken ones: does a text bring what the room holds?

Always holds: judged by numbers and values alone (prices, names, colours, actions), so that an envelope around a
result or renamed keys in it change nothing. Not here: what a call returns (backend).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.backend import ERROR, carry_out
from hat_scenarios.live_commerce.room import Room

NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_TOKEN: Final = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]")
VALUES: Final = frozenset((*words.BRANDS, *words.COLOURS, *words.MATERIALS, *words.ACTIONS))
"""Words that state a fact wherever they stand."""
_TELLING: Final = VALUES | frozenset((*words.NOUNS, *words.MODELS, *words.SIZES, *words.FAQ, *words.PROBLEMS))


def tokens(text: str) -> list[str]:
    """Lower-case words, numbers and single punctuation marks."""
    return _TOKEN.findall(text.lower())


def contains(text: str, phrase: str) -> bool:
    """Whether the phrase's tokens stand in the text's, one after the other."""
    have, want = tokens(text), tokens(phrase)
    return any(have[at : at + len(want)] == want for at in range(len(have) - len(want) + 1))


def brings(room: Room, tool: str, arguments: Mapping[str, Any], text: str) -> bool:
    """Whether `text` holds every number and value that the call truly returns in `room`; an error never does."""
    _, truth = carry_out(room.model_copy(update={"note": ""}), tool, arguments)
    if truth.startswith(ERROR) or ERROR in text:
        return False
    have = set(tokens(text))
    return all(token in have for token in tokens(truth) if token in _TELLING or NUMBER.fullmatch(token))
