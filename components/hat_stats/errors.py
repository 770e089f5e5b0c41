"""Errors of hat_stats: its own tree with the attributes of the platform's errors (siblings do not import).

    StatsError        message, place, cure; one closed `kind`
    └── InputError    data or settings from which the asked-for quantity cannot be computed

Not here: quantities that are undefined for valid data. Those are results with a state, not errors.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "check_failed", "usage", "invalid_input", "conflict", "forbidden", "unavailable", "exhausted", "internal"
]


class StatsError(Exception):
    """Root of everything that hat_stats raises; reads like every other error of the platform."""

    kind: Kind = "internal"

    def __init__(self, message: str, *, place: str = "", cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.cure = cure

    def __str__(self) -> str:
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head} ({self.cure})" if self.cure else head


class InputError(StatsError):
    """The arrays do not fit each other, a value is impossible, or a setting is out of its range."""

    kind: Kind = "invalid_input"
