"""Rows of general data: what a model needs to read any harness (hat_scenarios.general), as sources for a stream.

Always holds: a held-out word never comes up where it is to be avoided. Not here: the texts themselves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence

from hat_components.model.batches import Draw, Source
from hat_components.model.codec import Codec, Row
from hat_scenarios import general
from hat_scenarios.base import Vocabulary
from hat_scenarios.general.words import OBJECTS, QUALITIES, VERBS

LEAST_WORDS = 64
"""With fewer words that are one token, general data also uses words that are several."""
_PIECE = re.compile(r"[ _]?[A-Za-z0-9]+|[^A-Za-z0-9\s]")
_WORD = re.compile(r"[a-z]{3,12}")


def pieces_of(codec: Codec) -> tuple[str, ...]:
    """Raw texts of all tokens that copying should work for, leading space or underscore included."""
    texts = (codec.text([token]) for token in range(len(codec.tokenizer)))
    return tuple(text for text in texts if _PIECE.fullmatch(text))


def words_of(pieces: Iterable[str]) -> tuple[str, ...]:
    """Words that are one token at the start of a name and after a space or an underscore."""
    known = set(pieces)
    bare = sorted(piece for piece in known if _WORD.fullmatch(piece))
    return tuple(word for word in bare if f" {word}" in known or f"_{word}" in known)


def words_in(vocabulary: Vocabulary) -> set[str]:
    """Every single word of a vocabulary's names and phrases."""
    names = (word for pool in vocabulary.names.values() for word in pool)
    return set(" ".join([*names, *vocabulary.gates, *vocabulary.openers]).replace("_", " ").split())


def general_words(codec: Codec, avoid: Iterable[str] = ()) -> general.Words:
    """What general data is written with under this tokenizer, without the words to avoid."""
    pieces = pieces_of(codec)
    whole = words_of(pieces)
    if len(whole) < LEAST_WORDS:  # a small vocabulary keeps few words whole
        whole = (*whole, *OBJECTS, *VERBS, *QUALITIES)
    return general.Words.of(whole, pieces, frozenset(avoid))


def draw_of(kind: general.Kind, codec: Codec, words: general.Words) -> Draw:
    """A source of fresh rows of one kind."""

    def draw(rng: random.Random) -> Sequence[Row]:
        return (codec.row(general.stream(kind, rng, words)),)

    return draw


def sources(shares: Mapping[general.Kind, float], codec: Codec, words: general.Words) -> list[Source]:
    """One source for every kind; shares count tokens, so that short instructions are not drowned."""
    return [Source(kind, share, draw_of(kind, codec, words)) for kind, share in shares.items() if share > 0]
