"""Two evaluations are compared over the same items only, and called better only when interval and adjusted p agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hat_components.evaluate.compare import compare, shifts
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.step import InputError

Fabricate = Callable[..., dict[str, Path]]
HALF = [0.0, 1.0] * 20


def arm(fabricate: Fabricate, name: str, **scores: list[float]) -> Evaluation:
    return load_evaluation(fabricate(name, scores)[f"evaluation-{name}"])


def test_a_clear_difference_is_called_better_and_its_mirror_worse(fabricate: Fabricate) -> None:
    a, b = arm(fabricate, "a", t1=HALF, t2=[1.0] * 40), arm(fabricate, "b", t1=HALF, t2=HALF)
    same, better = compare(a, b, draws=1000)
    assert (same.delta, same.kind, same.p) == (0.0, "no_difference_shown", 1.0)
    assert better.kind == "better"
    assert better.delta == pytest.approx(0.5)
    assert 0 < better.low < better.delta < better.high
    mirrored = compare(b, a, draws=1000)[1]
    assert mirrored.kind == "worse"
    assert (mirrored.low, mirrored.high) == (-better.high, -better.low)
    assert "a" in better.text


def test_a_margin_is_needed_to_call_two_equivalent(fabricate: Fabricate) -> None:
    a, b = arm(fabricate, "a", t1=[0.9] * 400), arm(fabricate, "b", t1=[0.9] * 399 + [0.8])
    assert compare(a, b, draws=500)[0].kind == "no_difference_shown"
    assert compare(a, b, draws=500, margin=0.02)[0].kind == "equivalent"


def test_many_suites_raise_the_bar(fabricate: Fabricate) -> None:
    edge = [1.0] * 7 + [0.0] + [0.5] * 30
    a = arm(fabricate, "a", t1=edge)
    b = arm(fabricate, "b", t1=[0.5] * 38)
    alone = compare(a, b, draws=4000)[0]
    assert alone.kind == "better"
    suites = {f"s{index}": [0.5] * 38 for index in range(12)}
    many = compare(arm(fabricate, "c", t1=edge, **suites), arm(fabricate, "d", t1=[0.5] * 38, **suites), draws=4000)
    assert many[0].delta == alone.delta
    assert many[0].p > alone.p
    assert many[0].kind == "no_difference_shown"


def test_other_items_or_harnesses_are_not_compared(fabricate: Fabricate) -> None:
    a, b = arm(fabricate, "a", t1=HALF), arm(fabricate, "b", t1=HALF)
    with pytest.raises(InputError, match="different items"):
        compare(a, b.model_copy(update={"dataset": "sha256:0"}))
    with pytest.raises(InputError, match="different harness"):
        compare(a, b.model_copy(update={"harness": "sha256:0"}))
    with pytest.raises(InputError, match="not in both evaluations: t9"):
        compare(a, b, suites=["t9"])
    with pytest.raises(InputError, match="any suite"):
        compare(a, b.model_copy(update={"suites": ()}))


def test_what_an_edit_costs_is_seen_within_one_evaluation(fabricate: Fabricate) -> None:
    (row,) = shifts(arm(fabricate, "a", t1=[1.0] * 40, t2=HALF), draws=1000)
    assert row.label == "a: T2 − T1"
    assert row.delta == pytest.approx(-0.5)
    assert row.kind == "worse"
