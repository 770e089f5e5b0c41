"""Results kept by identity of the immutable object that they were made from.

Always holds: an entry lives exactly as long as its object, so a long run that draws many harnesses keeps nothing of
those it dropped. Objects are not hashed or compared. Not here: results that depend on anything else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """`make(item)`, called once for each object."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._found: dict[int, tuple[weakref.ref[K], V]] = {}

    def of(self, item: K) -> V:
        """What was made from this very object."""
        key = id(item)
        entry = self._found.get(key)
        if entry is not None and entry[0]() is item:
            return entry[1]
        value = self._make(item)
        found = self._found
        found[key] = (weakref.ref(item, lambda _: found.pop(key, None)), value)
        return value
