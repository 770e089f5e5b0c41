"""Phrases that rules demand (gates, openers): where they stand, and how they are exchanged.

A phrase is the value of a hook argument. Texts state it in quotation marks, after `=`, or, when it has two words or
more, as it is; a reply says it at its start or end. One word is never exchanged in running prose.
Always holds: exchanging is symmetric, so that a reply that broke the old rule breaks the new one as well.
Not here: which phrase is drawn (words).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from hat_harness.augment.draft import Draft

_SENTENCE = re.compile(r"[^\n.!?。！？]*(?:\.|!|\?|。|！|？|\n|$)")


def arguments(draft: Draft, names: Iterable[str]) -> dict[str, str]:
    """Argument name → phrase, of all hooks that have one of the arguments; the first hook wins."""
    found: dict[str, str] = {}
    for hook in draft.parts["hooks"]:
        for name in names:
            if hook.arguments.get(name):
                found.setdefault(name, hook.arguments[name])
    return found


def in_language(texts: Iterable[str], language: str) -> list[str]:
    """Those of the texts that are written in the language; one without letters of its own is in every language."""
    found = []
    for text in texts:
        own = re.sub(r"\{\w+\}", "", text)
        chinese = any("\u4e00" <= letter <= "\u9fff" for letter in own)
        if chinese == (language == "zh") or not any(letter.isalpha() for letter in own):
            found.append(text)
    return found


def is_long(phrase: str) -> bool:
    """Whether the phrase is unlikely to occur by chance: two words, or four characters of Chinese."""
    return " " in phrase.strip() or (not phrase.isascii() and len(phrase) >= 4)


@lru_cache(maxsize=2048)
def _stated(phrase: str) -> re.Pattern[str]:
    """The places where an instruction states the phrase; the phrase itself is the group `phrase`."""
    word = re.escape(phrase)
    edge = r"(?![^\W_])" if phrase.isascii() else ""
    if is_long(phrase):
        start = r"(?<![^\W_])" if phrase.isascii() else ""
        return re.compile(f"{start}(?P<phrase>{word}){edge}")
    quoted = rf"(?<=[\"'`“‘「『])(?P<phrase>{word})(?=[\"'`”’」』])"
    return re.compile(rf"{quoted}|(?<== )(?P<after>{word}){edge}")


def states(text: str, phrase: str) -> bool:
    """Whether an instruction text states the phrase."""
    return phrase in text and _stated(phrase).search(text) is not None


def exchange(text: str, old: str, new: str) -> str:
    """The instruction text with every statement of `old` stating `new`."""
    if old not in text:
        return text
    return _stated(old).sub(lambda _: new, text)


def restate(text: str, old: str, new: str, statement: str) -> str:
    """The text with the one sentence that states only `old` replaced by `statement` about `new`.

    A sentence that says more (a name in backticks, a second quotation, above 14 words) stays as it is.
    """
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if not states(sentence, old):
            continue
        rest = _stated(old).sub("", sentence)
        simple = len(rest.split()) <= 14 and "`" not in rest and rest.count('"') <= 2
        if not simple:
            return text
        lead = sentence[: len(sentence) - len(sentence.lstrip())]
        tail = sentence[len(sentence.rstrip()) :]
        made = statement.replace("{phrase}", new)
        body = sentence.strip()
        if body[-1:] in ".。" and not made.rstrip().endswith((".", "。")):
            made += " ." if body.endswith(" .") else body[-1]
        return text[: match.start()] + lead + made + tail + text[match.end() :]
    return text


class Swap:
    """Phrases exchanged in replies, both ways at once."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self.to: dict[str, str] = {}
        for old, new in pairs.items():
            if old != new and old not in self.to and new not in self.to:
                self.to[old] = new
                self.to[new] = old
        short = {old for old, new in self.to.items() if not (is_long(old) and is_long(new))}
        self._short = sorted(short, key=len, reverse=True)
        self._long = sorted((phrase for phrase in self.to if phrase not in short), key=len, reverse=True)

    def reply(self, text: str) -> str:
        """A reply with its phrases exchanged; a phrase of one word (or whose counterpart is) only at start and end."""
        if not text or not self.to:
            return text
        start = next((p for p in self._short if text.startswith(p) and _ends(text, len(p))), "")
        rest = text[len(start) :]
        end = next((p for p in self._short if rest.endswith(p) and _starts(rest, len(rest) - len(p))), "")
        rest = rest[: len(rest) - len(end)]
        if any(phrase in rest for phrase in self._long):
            rest = self._exchanged(rest)
        return self.to.get(start, "") + rest + self.to.get(end, "")

    def _exchanged(self, text: str) -> str:
        """Long phrases exchanged wherever they stand as whole words: the leftmost first, the longest of those."""
        made: list[str] = []
        at = 0
        while True:
            places = [(found, phrase) for phrase in self._long if (found := _whole(text, phrase, at)) >= 0]
            if not places:
                return "".join([*made, text[at:]])
            found, phrase = min(places, key=lambda place: place[0])
            made += [text[at:found], self.to[phrase]]
            at = found + len(phrase)


def _whole(text: str, phrase: str, at: int) -> int:
    """Where the phrase next stands with no letter or digit beside it (Chinese needs no such border), or -1."""
    while (found := text.find(phrase, at)) >= 0:
        if _starts(text, found) and _ends(text, found + len(phrase)):
            return found
        at = found + 1
    return -1


def _ends(text: str, at: int) -> bool:
    return at == len(text) or not text[at].isalnum() or not text[at - 1].isascii()


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum() or not text[at].isascii()
