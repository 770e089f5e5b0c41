"""Time of the async driver: a clock that can be slept on, and the machine's own.

Always holds: time never goes back. Not here: a session's time (it is told with each event), wall clocks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Time of the async driver."""

    def now(self) -> float:
        """Seconds, never going back."""

    async def sleep_until(self, when: float) -> None:
        """Returns when `now()` has reached `when`."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep_until(self, when: float) -> None:
        """Sleeps."""
        await asyncio.sleep(max(0.0, when - time.monotonic()))

    def alarm(self, when: float, ring: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls `ring` when `now()` has reached `when`. A clock without alarms is slept on instead."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), ring)
