"""Words that operators draw names and phrases from, and the draws themselves.

Always holds: a draw consumes nothing but its `random.Random`; every name satisfies `spec.NAME_PATTERN`; a draw from the
training side never yields a held-out word, be it a pool's word or a random string that happens to spell one.
Not here: where names are put (naming) and which family is on (plan).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from string import ascii_lowercase
from typing import Literal, Protocol

NameMode = Literal[
    "trained", "held_out", "random", "random_held_out", "combination", "swap", "misleading", "char_noise"
]
PhraseMode = Literal["trained", "held_out", "random", "random_held_out"]

LOADERS = (("load_skill", "open_skill", "pick_skill"), ("enter_skill", "start_skill", "choose_skill"))
"""Names of the activation tool for a vocabulary that has none under `ACTIVATION`: trained, held out."""
ACTIVATION = "activation"
"""Key of `Words.names` for the activation tool; its parameter is `activation.parameter`."""
PIECES = ("ka", "lo", "mi", "ter", "ban", "do", "ri", "sel", "van", "pu", "gra", "ne", "tol", "shi", "fe", "mar")
"""Syllables of random words."""

_SPLIT = re.compile(r"[_\-\s]+")
_WORD = re.compile(r"[a-z]{2,12}")


class WordsLike(Protocol):
    """What a vocabulary must offer; `hat_scenarios.base.Vocabulary` and `Words` both do."""

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """Canonical id → synonyms; key `""` holds words that fit anything."""

    @property
    def gates(self) -> Sequence[str]:
        """Closing phrases."""

    @property
    def openers(self) -> Sequence[str]:
        """Opening phrases."""

    @property
    def descriptions(self) -> Mapping[str, Sequence[str]]:
        """Canonical id → paraphrases of its description; `<id>.body`, `<prompt id>.text` paraphrase longer texts."""

    @property
    def distractors(self) -> Sequence[tuple[str, str]]:
        """(name, description) of skills and tools that fit no intent."""


@dataclass(frozen=True)
class Words:
    """A plain vocabulary; the fields are those of `WordsLike`."""

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gates: Sequence[str] = ()
    openers: Sequence[str] = ()
    descriptions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    distractors: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Lexicon:
    """Both vocabularies and the word lists that random draws use; made by `lexicon`."""

    trained: WordsLike
    held_out: WordsLike
    words: tuple[str, ...]
    """Words that random training draws combine."""
    fresh: tuple[str, ...]
    """Words that only held-out draws may use; as a set it is what training draws must avoid."""
    forbidden: frozenset[str]

    def side(self, held_out: bool) -> WordsLike:
        """The vocabulary of one side."""
        return self.held_out if held_out else self.trained


_EMPTY = Words()
_CACHE: dict[tuple[int, int, tuple[str, ...]], tuple[WordsLike, WordsLike, Lexicon]] = {}


def lexicon(trained: WordsLike, held_out: WordsLike | None = None, extra: tuple[str, ...] = ()) -> Lexicon:
    """The `Lexicon` of a pair of vocabularies; `extra` words join the training side unless they are held out."""
    held = _EMPTY if held_out is None else held_out
    key = (id(trained), id(held), extra)
    known = _CACHE.get(key)
    if known is not None:  # the entry holds both objects, so their ids cannot have been reused
        return known[2]
    seen = _parts(trained, loaders=LOADERS[0])
    fresh = _parts(held, loaders=LOADERS[1] if held_out is not None else ()) - seen
    told = {word for texts in trained.descriptions.values() for text in texts for word in _WORD.findall(text)}
    told |= {word for _, text in trained.distractors for word in _WORD.findall(text)}
    words = {word for word in seen | told | set(extra) if _WORD.fullmatch(word)} - fresh
    fresh_words = tuple(sorted(word for word in fresh if _WORD.fullmatch(word)))
    made = Lexicon(trained, held, tuple(sorted(words)), fresh_words, frozenset(fresh))
    if len(_CACHE) >= 64:
        _CACHE.clear()
    _CACHE[key] = (trained, held, made)
    return made


def _parts(words: WordsLike, loaders: Iterable[str]) -> set[str]:
    """Every single word of the pools that names and phrases come from."""
    texts = [*(name for pool in words.names.values() for name in pool), *words.gates, *words.openers, *loaders]
    return {part for text in texts for part in _SPLIT.split(text.lower()) if part}


def pool(words: WordsLike, key: str) -> Sequence[str]:
    """Synonyms of `key`, or the words that fit anything."""
    return words.names.get(key) or words.names.get("") or ()


def random_part(rng: Random, lex: Lexicon, held_out: bool = False, kind: float | None = None) -> str:
    """One part of a random name: half a known word, a quarter random letters, a quarter syllables.

    `kind` in [0, 1) fixes which of the three, so that a name may be of one sort throughout.
    """
    source = lex.fresh if held_out and lex.fresh else lex.words
    draw = rng.random() if kind is None else kind
    if draw < 0.5 and source:
        return rng.choice(source)
    while True:
        if draw < 0.75:
            text = "".join(rng.choice(ascii_lowercase) for _ in range(rng.randint(2, 6)))
        else:
            text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 3)))
        if held_out or text not in lex.forbidden:
            return text


def random_name(rng: Random, lex: Lexicon, held_out: bool = False) -> str:
    """One to three random parts joined by `_`, mixed or all of one sort."""
    kind = rng.choice((None, 0.1, 0.6))
    count = rng.choices((1, 2, 3), (15, 70, 15))[0]
    return "_".join(random_part(rng, lex, held_out, kind) for _ in range(count))


def random_phrase(rng: Random, lex: Lexicon, words: tuple[int, int], held_out: bool = False) -> str:
    """A phrase of `words[0]` to `words[1]` random parts, three in four of them known words."""
    kinds = (0.1, 0.1, 0.1, 0.6)
    return " ".join(random_part(rng, lex, held_out, rng.choice(kinds)) for _ in range(rng.randint(*words)))


def drawn_name(rng: Random, lex: Lexicon, key: str, mode: NameMode, style: int, bare: bool = False) -> str:
    """A name for canonical id `key`.

    `style` 0 is synonym_word, 1 word_synonym, 2 word_word, shared by all names of one rewrite, as people name things
    alike within one system. `bare` names (parameters) are a synonym alone. Modes that depend on the old names
    (`misleading`, `char_noise`) are not drawn here.
    """
    if mode in ("random", "random_held_out"):
        held = mode == "random_held_out"
        return random_part(rng, lex, held) if bare else random_name(rng, lex, held)
    side = lex.side(mode == "held_out")
    anything = side.names.get("") or ()
    if mode == "swap":
        others = [other for other in side.names if other not in (key, "")]
        key = rng.choice(others) if others else key
    synonyms = side.names.get(key) or anything
    if key.startswith(ACTIVATION) and key not in side.names:
        if bare:
            return rng.choice(("skill", "name", "id"))
        return rng.choice(LOADERS[mode == "held_out"])
    if not synonyms:
        return random_name(rng, lex, mode == "held_out")
    if bare or not anything:
        return rng.choice(synonyms)
    if mode == "combination":
        one, two = rng.choice((rng.choice(synonyms), rng.choice(anything))), rng.choice(anything)
        return f"{one}_{two}" if rng.random() < 0.5 else f"{two}_{one}"
    if style == 0:
        return f"{rng.choice(synonyms)}_{rng.choice(anything)}"
    if style == 1:
        return f"{rng.choice(anything)}_{rng.choice(synonyms)}"
    return f"{rng.choice(anything)}_{rng.choice(anything)}"


def noisy(rng: Random, name: str) -> str:
    """`name` with up to a third of its characters inserted, deleted or replaced (RoTBench's slight noise)."""
    letters = list(name) or ["x"]
    for _ in range(rng.randint(1, max(1, len(name) // 3))):
        at = rng.randrange(len(letters))
        edit = rng.randrange(3)
        if edit == 0:
            letters.insert(at, rng.choice(ascii_lowercase))
        elif edit == 1 and len(letters) > 1:
            del letters[at]
        else:
            letters[at] = rng.choice(ascii_lowercase)
    return "".join(letters)


def drawn_phrase(rng: Random, lex: Lexicon, which: Literal["gates", "openers"], mode: PhraseMode) -> str:
    """A gate (2 to 5 words when random) or an opener (1 to 3)."""
    held = mode in ("held_out", "random_held_out")
    phrases: Sequence[str] = lex.side(held).gates if which == "gates" else lex.side(held).openers
    if mode in ("trained", "held_out") and phrases:
        return rng.choice(phrases)
    return random_phrase(rng, lex, (2, 5) if which == "gates" else (1, 3), held)
