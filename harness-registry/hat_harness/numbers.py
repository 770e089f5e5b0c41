"""Numbers in texts, in one form: what a reply states against what the conversation holds.

Always holds: `39`, `39.00`, `３９` and, as a thousand, `1,299` and `1299` are one number each. Digits inside words
count. Not here: number words (`ten`, `三十`), which scenarios score by fact.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_NUMBER = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")


def _plain(text: str) -> str:
    whole, _, fraction = text.replace(",", "").partition(".")
    whole = whole.lstrip("0") or "0"
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def numbers(text: str) -> list[str]:
    """The numbers of a text, each once, in order."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return list(dict.fromkeys(_plain(found) for found in _NUMBER.findall(text)))


def gather(texts: Iterable[str]) -> dict[str, None]:
    """The numbers of many texts, in order."""
    found: dict[str, None] = {}
    for text in texts:
        found.update(dict.fromkeys(_kept(text) if len(text) >= _LONG else numbers(text)))
    return found


_LONG = 400
"""Characters from which a text is likely a system prompt or a skill's body, which many sessions read."""


@lru_cache(maxsize=256)
def _kept(text: str) -> tuple[str, ...]:
    return tuple(numbers(text))
