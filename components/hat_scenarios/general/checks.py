"""Programs that say whether a reply meets one demand.

Always holds: pure; each takes the reply and the demand's arguments. Words are compared whole, quotes around them and
surrounding spaces aside. Not here: which demands a prompt makes (instructions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final


def bare(reply: str) -> list[str]:
    """The reply's words without quotation marks and sentence points."""
    return [word for word in (part.strip('".,!') for part in reply.split()) if word]


def _within(words: Sequence[str], wanted: Sequence[str]) -> bool:
    return any(list(words[at : at + len(wanted)]) == list(wanted) for at in range(len(words) - len(wanted) + 1))


def says(reply: str, arguments: Sequence[str]) -> bool:
    """The words of `arguments[0]` stand in the reply, one after the other."""
    return _within(bare(reply), arguments[0].split())


def times(reply: str, arguments: Sequence[str]) -> bool:
    """The word stands in the reply exactly so often."""
    return bare(reply).count(arguments[0]) == int(arguments[1])


def starts(reply: str, arguments: Sequence[str]) -> bool:
    """The reply begins with the words."""
    wanted = arguments[0].split()
    return bare(reply)[: len(wanted)] == wanted


def ends(reply: str, arguments: Sequence[str]) -> bool:
    """The reply closes with the words."""
    wanted = arguments[0].split()
    return bare(reply)[-len(wanted) :] == wanted


def lacks(reply: str, arguments: Sequence[str]) -> bool:
    """The word does not stand in the reply."""
    return arguments[0] not in bare(reply)


def words(reply: str, arguments: Sequence[str]) -> bool:
    """The reply has exactly so many words."""
    return len(bare(reply)) == int(arguments[0])


def order(reply: str, arguments: Sequence[str]) -> bool:
    """All words stand in the reply, in this order, whatever is between them."""
    found = iter(bare(reply))
    return all(word in found for word in arguments)


def quoted(reply: str, arguments: Sequence[str]) -> bool:
    """The whole reply stands in double quotes."""
    return len(reply) > 2 and reply.startswith('"') and reply.endswith('"')


def capital(reply: str, arguments: Sequence[str]) -> bool:
    """The word stands in the reply with its first letter, and only that, in upper case."""
    return arguments[0].capitalize() in bare(reply)


CHECKS: Final[dict[str, Callable[[str, Sequence[str]], bool]]] = {
    check.__name__: check for check in (says, times, starts, ends, lacks, words, order, quoted, capital)
}
"""Checkers by name."""
