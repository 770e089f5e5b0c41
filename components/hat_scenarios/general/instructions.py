"""Instructions whose fulfilment a program can check, within the small vocabulary (suite T4m).

A prompt has one task and up to two demands on the form of the answer; each is checked by itself, so that prompt-level
(all hold) and instruction-level accuracy can be told, as IFEval does. Always holds: the model answer of every item
passes its own checks; the same seed gives the same items, and no two of one draw ask the same.
Not here: IFEval itself (hat_components.evaluate).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hat_scenarios.base import Record
from hat_scenarios.general.checks import CHECKS
from hat_scenarios.general.words import Words, split


class Check(Record):
    """One demand: a checker of `checks.CHECKS` and what it is given."""

    family: str
    arguments: tuple[str, ...] = ()


class Instruction(Record):
    """One prompt of T4m. `family` is that of its task."""

    id: str
    family: str
    prompt: str
    checks: tuple[Check, ...]
    answer: str
    """One right answer; others may pass too."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task before demands are added: prompt, the answer's words, what is checked."""

    prompt: str
    answer: tuple[str, ...]
    checks: tuple[Check, ...]


Maker = Callable[[random.Random, Sequence[str]], Draft]


def _check(family: str, *arguments: str) -> Check:
    return Check(family=family, arguments=arguments)


def _said(words: Sequence[str]) -> tuple[Check, ...]:
    return (_check("says", " ".join(words)),)


def _say(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f'say "{w[0]} {w[1]}"', (w[0], w[1]), _said(w[:2]))


def _repeat(rng: random.Random, w: Sequence[str]) -> Draft:
    times = rng.randint(2, 4)
    return Draft(f"write {w[0]} {times} times", (w[0],) * times, (_check("times", w[0], str(times)),))


def _list_after(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f'start with "{w[0]}" then list {w[1]} {w[2]}', tuple(w[:3]), (_check("starts", w[0]), *_said(w[1:3])))


def _reverse(rng: random.Random, w: Sequence[str]) -> Draft:
    count = rng.randint(2, 4)
    turned = tuple(reversed(w[:count]))
    return Draft(f"reverse {' '.join(w[:count])}", turned, _said(turned))


def _avoid(rng: random.Random, w: Sequence[str]) -> Draft:
    shown = [w[0], w[1]]
    rng.shuffle(shown)
    return Draft(
        f"do not say {w[0]} , pick from {' '.join(shown)}", (w[1],), (_check("lacks", w[0]), _check("says", w[1]))
    )


def _count(rng: random.Random, w: Sequence[str]) -> Draft:
    count = rng.randint(2, 6)
    return Draft(f"how many words : {' '.join(w[:count])}", (str(count),), _said([str(count)]))


def _order(rng: random.Random, w: Sequence[str]) -> Draft:
    count = rng.randint(3, 5)
    return Draft(f"keep the order : {' '.join(w[:count])}", tuple(w[:count]), (_check("order", *w[:count]),))


def _last(rng: random.Random, w: Sequence[str]) -> Draft:
    count = rng.randint(3, 5)
    return Draft(f"last word of {' '.join(w[:count])}", (w[count - 1],), _only([w[count - 1]]))


def _first(rng: random.Random, w: Sequence[str]) -> Draft:
    count = rng.randint(3, 5)
    return Draft(f"first word of {' '.join(w[:count])}", (w[0],), _only([w[0]]))


def _only(words: Sequence[str]) -> tuple[Check, ...]:
    return (_check("words", str(len(words))), *_said(words))


def _after(rng: random.Random, w: Sequence[str]) -> Draft:
    at = rng.randint(0, 2)
    return Draft(f"in {' '.join(w[:4])} what comes after {w[at]}", (w[at + 1],), _only([w[at + 1]]))


def _between(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f"put {w[2]} between {w[0]} and {w[1]}", (w[0], w[2], w[1]), _said((w[0], w[2], w[1])))


def _replace(rng: random.Random, w: Sequence[str]) -> Draft:
    at = rng.randint(0, 2)
    new = [*w[:at], w[3], *w[at + 1 : 3]]
    return Draft(f"{' '.join(w[:3])} : change {w[at]} to {w[3]}", tuple(new), (*_said(new), _check("lacks", w[at])))


def _drop(rng: random.Random, w: Sequence[str]) -> Draft:
    at = rng.randint(0, 3)
    kept = [*w[:at], *w[at + 1 : 4]]
    return Draft(f"{' '.join(w[:4])} : leave out {w[at]}", tuple(kept), (*_said(kept), _check("lacks", w[at])))


def _twice(rng: random.Random, w: Sequence[str]) -> Draft:
    doubled = (w[0], w[0], w[1], w[1])
    return Draft(f"each word twice : {w[0]} {w[1]}", doubled, _said(doubled))


def _join(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f"join {w[0]} {w[1]} with _", (f"{w[0]}_{w[1]}",), _said([f"{w[0]}_{w[1]}"]))


def _capital(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f"upper case first letter : {w[0]}", (w[0].capitalize(),), (_check("capital", w[0]),))


def _swap(rng: random.Random, w: Sequence[str]) -> Draft:
    return Draft(f"swap {w[0]} and {w[1]}", (w[1], w[0]), _said((w[1], w[0])))


FAMILIES: Final[dict[str, Maker]] = {
    "say": _say,
    "repeat": _repeat,
    "list_after": _list_after,
    "reverse": _reverse,
    "avoid": _avoid,
    "count": _count,
    "order": _order,
    "last": _last,
    "first": _first,
    "after": _after,
    "between": _between,
    "replace": _replace,
    "drop": _drop,
    "twice": _twice,
    "join": _join,
    "capital": _capital,
    "swap": _swap,
}
"""Task families by name; each gets random state and six different words."""


def _with_end(rng: random.Random, draft: Draft, word: str) -> Draft:
    return Draft(f'{draft.prompt} and end with "{word}"', (*draft.answer, word), (*draft.checks, _check("ends", word)))


def _with_start(rng: random.Random, draft: Draft, word: str) -> Draft:
    return Draft(
        f'begin with "{word}" , {draft.prompt}', (word, *draft.answer), (*draft.checks, _check("starts", word))
    )


def _with_quotes(rng: random.Random, draft: Draft, word: str) -> Draft:
    answer = (f'"{draft.answer[0]}', *draft.answer[1:])
    return Draft(f"in quotes : {draft.prompt}", (*answer[:-1], f'{answer[-1]}"'), (*draft.checks, _check("quoted")))


_OWN: Final = frozenset(
    split(
        """
a after and avoid begin between case change comes do each end first from how in it join keep last leave letter
list many not of order out pick put quotes reverse say start swap the then times to twice upper what with word words
write
"""
    )
)
"""Words of the prompts themselves, which would make an instruction hard to parse."""
NEEDED: Final = 8
"""Different words that one instruction is made with."""
_CLOSED: Final = frozenset({"last", "first", "after"})
"""Tasks that say how many words the answer has; nothing may be added."""


def draw(rng: random.Random, words: Words, demands: bool = True) -> tuple[str, Draft]:
    """(family, one instruction); with `demands` two in five carry one more demand, one in ten two.

    Raises ValueError with fewer than `NEEDED` words that are not of the prompts themselves.
    """
    if len(words.words) < len(_OWN) + NEEDED and len(set(words.words) - _OWN) < NEEDED:
        raise ValueError(f"instructions need {NEEDED} words to choose from that are not their own")
    family = rng.choice(tuple(FAMILIES))
    chosen: list[str] = []
    while len(chosen) < NEEDED:
        word = rng.choice(words.words)
        if word not in chosen and word not in _OWN:
            chosen.append(word)
    draft = FAMILIES[family](rng, chosen[:6])
    extra = rng.choices((0, 1, 2), (5, 4, 1))[0] if demands else 0
    if extra and family not in _CLOSED:
        draft = rng.choice((_with_end, _with_start) if family != "list_after" else (_with_end,))(rng, draft, chosen[6])
    if extra == 2:
        draft = _with_quotes(rng, draft, chosen[7])
    return family, draft


def instruction(rng: random.Random, words: Words) -> list[dict[str, Any]]:
    """One instruction as a conversation."""
    _, draft = draw(rng, words)
    return [{"role": "user", "content": draft.prompt}, {"role": "assistant", "content": " ".join(draft.answer)}]


def instructions(seed: int, count: int, words: Words) -> Iterator[Instruction]:
    """`count` different instructions."""
    rng = random.Random(f"instructions/{seed}")
    seen: set[str] = set()
    while len(seen) < count:
        family, draft = draw(rng, words)
        if draft.prompt in seen:
            continue
        yield Instruction(
            id=f"t4m-{seed}-{len(seen)}",
            family=family,
            prompt=draft.prompt,
            checks=draft.checks,
            answer=" ".join(draft.answer),
        )
        seen.add(draft.prompt)


def verify(item: Instruction, reply: str) -> tuple[bool, ...]:
    """Whether each demand is met, in order of `checks`; an empty reply meets none."""
    said = reply.strip()
    return tuple(bool(said) and CHECKS[check.family](said, check.arguments) for check in item.checks)
