"""Promotion arithmetic, exact, in cents: percentages, thresholds, fixed amounts, and the best allowed combination.

Always holds: a price is a whole number of cents and never negative; percentages apply before fixed amounts, each to
what is left, rounded half up to the cent; conditions (`from_cents`) look at the sum before any promotion; at most one
promotion of a group applies, and only one at all where the room does not let promotions stack.
Not here: which promotions a room has (room), the texts that tools answer (backend).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

Kind = Literal["percent", "fixed"]


@dataclass(frozen=True, slots=True)
class Promotion:
    """One promotion. `value` is a percentage (0 to 100) or an amount in cents."""

    name: str
    kind: Kind
    value: int
    from_cents: int = 0
    """Least sum, before any promotion, at which it applies."""
    group: str = ""
    """Promotions that share a group exclude each other; "" shares with none."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What an order costs: `sum` before promotions, `pay` after, both in cents; `used` in order of application."""

    sum: int
    pay: int
    used: tuple[str, ...] = ()

    @property
    def off(self) -> int:
        """Cents saved."""
        return self.sum - self.pay


def apply(total: int, promotions: Sequence[Promotion]) -> Quote:
    """The quote for a sum of `total` cents with exactly these promotions; those whose condition fails are left out."""
    valid = [promotion for promotion in promotions if total >= promotion.from_cents]
    ordered = sorted(valid, key=lambda promotion: (promotion.kind != "percent", promotion.name))
    left = total
    for promotion in ordered:
        if promotion.kind == "percent":
            left -= (left * promotion.value + 50) // 100
        else:
            left -= promotion.value
        left = max(left, 0)
    return Quote(sum=total, pay=left, used=tuple(promotion.name for promotion in ordered))


def best(unit: int, count: int, promotions: Sequence[Promotion], *, stack: bool) -> Quote:
    """The lowest quote for `count` pieces at `unit` cents; among equals the one with fewest promotions, then names."""
    total = unit * count
    valid = [promotion for promotion in promotions if total >= promotion.from_cents]
    most = len(valid) if stack else min(1, len(valid))
    quotes = [
        apply(total, chosen) for size in range(most + 1) for chosen in combinations(valid, size) if _compatible(chosen)
    ]
    return min(quotes, key=lambda quote: (quote.pay, len(quote.used), quote.used))


def _compatible(chosen: Sequence[Promotion]) -> bool:
    groups = [promotion.group for promotion in chosen if promotion.group]
    return len(groups) == len(set(groups))


def yuan(cents: int) -> str:
    """Cents as text: whole yuan without a point, else two decimals."""
    whole, rest = divmod(cents, 100)
    return str(whole) if rest == 0 else f"{whole}.{rest:02d}"
