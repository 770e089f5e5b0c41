"""Kappa, alpha, rates and proportions: the numbers, and what is said where there is none."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.proportion import proportion_confint

from hat_stats.agreement import class_rates, cohen_kappa, confusion, krippendorff_alpha, proportion
from hat_stats.errors import InputError

label = st.sampled_from(["right", "wrong", "unclear"])
NAN = math.nan


def ratings(table: np.ndarray, names: list[str]) -> tuple[list[str], list[str]]:
    cells = [(a, b, int(table[i, j])) for i, a in enumerate(names) for j, b in enumerate(names)]
    return [a for a, _, k in cells for _ in range(k)], [b for _, b, k in cells for _ in range(k)]


@pytest.mark.parametrize("table", [[[40, 5], [7, 30]], [[10, 3, 1], [2, 15, 4], [0, 2, 20]], [[0, 9], [11, 0]]])
@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_and_its_interval_agree_with_statsmodels(table: list[list[int]], weights: str) -> None:
    names = ["a", "b", "c"][: len(table)]
    a, b = ratings(np.array(table), names)
    ours = cohen_kappa(a, b, weights=weights, labels=names)  # type: ignore[arg-type]
    wt = {"none": None, "linear": "linear", "quadratic": "quadratic"}[weights]
    theirs = cohens_kappa(np.array(table), wt=wt)
    assert ours.value == pytest.approx(theirs.kappa)
    assert ours.low == pytest.approx(max(-1.0, theirs.kappa_low), abs=1e-9)
    assert ours.high == pytest.approx(min(1.0, theirs.kappa_upp), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(label, label), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_kappa_is_symmetric_and_ignores_order(pairs: list[tuple[str, str]], random: object) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    there, back = cohen_kappa(a, b), cohen_kappa(b, a)
    assert there.value == pytest.approx(back.value)
    random.shuffle(pairs)  # type: ignore[attr-defined]
    again = cohen_kappa([x for x, _ in pairs], [y for _, y in pairs])
    assert again.value == pytest.approx(there.value)
    assert again.low == pytest.approx(there.low)


def test_kappa_of_one_class_is_undefined_and_says_so() -> None:
    seen = cohen_kappa([True] * 20, [True] * 20)
    assert (seen.value, seen.state, seen.observed, seen.n) == (None, "one_class", 1.0, 20)
    assert (seen.low, seen.high) == (-1.0, 1.0)
    assert cohen_kappa([], []).state == "empty"
    assert cohen_kappa([None, 1], [1, None]).missing == 2


def test_perfect_agreement_on_few_items_is_not_certainty() -> None:
    few, many = cohen_kappa([1, 0] * 5, [1, 0] * 5), cohen_kappa([1, 0] * 500, [1, 0] * 500)
    assert few.value == many.value == 1.0
    assert few.low < 0.5
    assert many.low > 0.98


def test_missing_judgements_are_counted_not_held_against_the_judge() -> None:
    seen = cohen_kappa([1, 0, 1, 0, 1], [1, 0, NAN, None, 0])
    assert (seen.n, seen.missing, seen.observed) == (3, 2, pytest.approx(2 / 3))


def test_weights_need_the_order_of_the_labels() -> None:
    with pytest.raises(InputError, match="order"):
        cohen_kappa([1, 2], [1, 2], weights="linear")
    with pytest.raises(InputError, match="none of the labels"):
        cohen_kappa([1, 3], [1, 2], labels=[1, 2])
    with pytest.raises(InputError, match="lengths"):
        cohen_kappa([1], [1, 2])


def naive_alpha(rows: list[list[float | None]], interval: bool) -> float:
    """Krippendorff's alpha from its definition: 1 − mean disagreement within items / between any two ratings."""
    items = [[row[k] for row in rows if row[k] is not None] for k in range(len(rows[0]))]
    items = [item for item in items if len(item) > 1]
    total = sum(map(len, items))

    def apart(x: float, y: float) -> float:
        return (x - y) ** 2 if interval else float(x != y)

    within = (
        sum(
            apart(x, y) / (len(item) - 1)
            for item in items
            for x, y in itertools.permutations(item, 2)  # type: ignore[arg-type]
        )
        / total
    )
    every = [x for item in items for x in item]
    between = sum(apart(x, y) for x, y in itertools.permutations(every, 2)) / (total * (total - 1))  # type: ignore[arg-type]
    return 1 - within / between


@pytest.mark.parametrize("measure", ["nominal", "interval"])
def test_alpha_agrees_with_its_definition(measure: str) -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(1, 5, 60)
    rows: list[list[float | None]] = [
        [None if rng.random() < 0.15 else float(t if rng.random() < 0.7 else rng.integers(1, 5)) for t in truth]
        for _ in range(3)
    ]
    seen = krippendorff_alpha(rows, measure=measure, seed=1, draws=300)  # type: ignore[arg-type]
    assert seen.value == pytest.approx(naive_alpha(rows, measure == "interval"))
    assert seen.low < seen.value < seen.high  # type: ignore[operator]
    assert seen == krippendorff_alpha(rows, measure=measure, seed=1, draws=300)  # type: ignore[arg-type]


def test_alpha_states() -> None:
    assert krippendorff_alpha([[1, 1], [1, 1]], seed=1).state == "one_class"
    assert krippendorff_alpha([[1, None], [None, 2]], seed=1).state == "empty"
    assert krippendorff_alpha([[1, None], [None, 2]], seed=1).missing == 2
    perfect = krippendorff_alpha([["a", "b"] * 5, ["a", "b"] * 5], seed=1)
    assert perfect.value == pytest.approx(1.0)
    assert perfect.low < 0.6
    with pytest.raises(InputError, match="numbers"):
        krippendorff_alpha([["a"], ["b"]], measure="interval", seed=1)
    with pytest.raises(InputError, match="different numbers"):
        krippendorff_alpha([["a"], ["b", "c"]], seed=1)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (3, 17), (480, 978)])
@pytest.mark.parametrize(("method", "theirs"), [("wilson", "wilson"), ("exact", "beta")])
def test_proportions_agree_with_statsmodels(k: int, n: int, method: str, theirs: str) -> None:
    ours = proportion(k, n, method=method)  # type: ignore[arg-type]
    low, high = proportion_confint(k, n, method=theirs)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=1e-9)


def test_proportions_without_items_and_with_missing_ones() -> None:
    none = proportion(0, 0)
    assert (none.value, none.low, none.high) == (None, 0.0, 1.0)
    open_ended = proportion(0, 0, missing=5)
    assert open_ended.value is None
    assert (open_ended.low, open_ended.high) == pytest.approx((0.0, 1.0))
    whole, holed = proportion(80, 100), proportion(75, 90, missing=10)
    assert holed.low < whole.low
    assert holed.high > whole.high
    with pytest.raises(InputError):
        proportion(5, 4)


def test_class_rates_and_confusion_count_what_they_say() -> None:
    truth = ["right"] * 10 + ["wrong"] * 6
    judged: list[str | None] = ["right"] * 8 + ["wrong"] + [None] + ["wrong"] * 5 + ["right"]
    rates = class_rates(truth, judged)
    assert rates["right"].sensitivity.value == pytest.approx(8 / 9)
    assert rates["right"].sensitivity.missing == 1
    assert rates["right"].specificity.value == pytest.approx(5 / 6)
    assert rates["right"].precision.value == pytest.approx(8 / 9)
    assert rates["wrong"].sensitivity.value == pytest.approx(5 / 6)
    assert rates["wrong"].specificity.value == pytest.approx(8 / 9)
    seen = confusion(truth, judged)
    assert seen.labels == ("right", "wrong")
    assert seen.counts == ((8, 1), (1, 5))
    assert (seen.n, seen.missing) == (15, 1)
