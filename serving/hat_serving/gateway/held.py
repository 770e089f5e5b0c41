"""Conversations in memory: the session of each, and how far it is stored; the least recently used go first.

Always holds: one that a turn is running on stays. Not here: the store, which has all of them (conversations).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from hat_harness.session import Session
from hat_serving.gateway.brought import Brought
from hat_serving.gateway.conversations import Stored


class Held:
    """One conversation. `seen`: its entries that are stored; `told`: those that a record was made of."""

    __slots__ = ("head", "lock", "seen", "session", "told", "tools")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self.head: Stored | None = None
        self.seen = self.told = 0
        self.tools: Brought | None = None

    @property
    def theirs(self) -> frozenset[str]:
        """Ids of the client's tools."""
        return frozenset(tool.id for tool in self.tools.tools) if self.tools is not None else frozenset()


class Holding:
    """At most `most` of them, but for those in use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, Held] = OrderedDict()

    def of(self, conversation: str) -> Held:
        """The conversation's, an empty one where it is not held."""
        found = self._held.setdefault(conversation, Held())
        self._held.move_to_end(conversation)
        while len(self._held) > self._most:
            oldest = next((key for key, value in self._held.items() if not value.lock.locked()), None)
            if oldest is None or oldest == conversation:
                break
            del self._held[oldest]
        return found

    def clear(self) -> None:
        """Let all of them go."""
        self._held.clear()
