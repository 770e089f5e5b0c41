"""Promotion arithmetic agrees with an independent reference, for any prices and promotions."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_scenarios.live_commerce.promotion import Promotion, apply, best, yuan


@st.composite
def promotions(draw: Any) -> list[Promotion]:
    found = []
    for index in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(("percent", "fixed")))
        value = draw(st.integers(0, 100) if kind == "percent" else st.integers(0, 30_000))
        found.append(
            Promotion(f"p{index}", kind, value, draw(st.integers(0, 60_000)), draw(st.sampled_from(("", "", "a", "b"))))
        )
    return found


def reference(total: int, chosen: list[Promotion]) -> int:
    """In yuan and decimals, percentages by name and then amounts."""
    left = Decimal(total) / 100
    for promotion in sorted(chosen, key=lambda one: one.name):
        if promotion.kind == "percent":
            off = (left * promotion.value / 100).quantize(Decimal("0.01"), ROUND_HALF_UP)
            left -= off
    for promotion in chosen:
        if promotion.kind == "fixed":
            left = max(Decimal(0), left - Decimal(promotion.value) / 100)
    return int(left * 100)


def reference_best(total: int, offered: list[Promotion], stack: bool) -> int:
    lowest = total
    for mask in range(1 << len(offered)):
        chosen = [promotion for at, promotion in enumerate(offered) if mask >> at & 1]
        groups = [promotion.group for promotion in chosen if promotion.group]
        allowed = len(groups) == len(set(groups)) and all(total >= promotion.from_cents for promotion in chosen)
        if allowed and (stack or len(chosen) <= 1):
            lowest = min(lowest, reference(total, chosen))
    return lowest


@given(unit=st.integers(1, 100_000), count=st.integers(1, 9), offered=promotions(), stack=st.booleans())
def test_the_best_price_is_the_lowest_allowed_one(unit: int, count: int, offered: list[Promotion], stack: bool) -> None:
    quote = best(unit, count, offered, stack=stack)
    assert quote.sum == unit * count
    assert quote.pay == reference_best(unit * count, offered, stack)
    assert quote.off == quote.sum - quote.pay >= 0
    chosen = [promotion for promotion in offered if promotion.name in quote.used]
    assert len(quote.used) == len(chosen) <= (len(offered) if stack else 1)
    assert apply(quote.sum, chosen).pay == quote.pay


@given(total=st.integers(0, 1_000_000), offered=promotions())
def test_a_quote_never_goes_below_zero_or_above_the_sum(total: int, offered: list[Promotion]) -> None:
    assert 0 <= apply(total, offered).pay <= total


def test_worked_examples() -> None:
    sale = Promotion("sale", "percent", 20)
    coupon = Promotion("coupon", "fixed", 1_000, from_cents=8_000, group="coupon")
    own = Promotion("own coupon", "fixed", 1_500, group="coupon")
    assert best(4_000, 2, [sale, coupon], stack=True).pay == 5_400
    assert best(3_900, 2, [sale, coupon], stack=True).pay == 6_240  # 78 yuan: the coupon starts at 80
    assert best(4_000, 2, [sale, coupon, own], stack=True).used == ("sale", "own coupon")
    assert best(4_000, 2, [sale, coupon, own], stack=False).used == ("sale",)
    assert apply(333, [Promotion("half", "percent", 50)]).pay == 166  # 166.5 off is rounded up to 167
    assert best(500, 1, [own], stack=True).pay == 0


@pytest.mark.parametrize(("cents", "text"), [(4_000, "40"), (3_990, "39.90"), (5, "0.05"), (0, "0")])
def test_money_is_written_without_needless_digits(cents: int, text: str) -> None:
    assert yuan(cents) == text
