"""Tests of paired runs, and corrections for asking many questions at once.

Always holds: missing pairs are counted and, where the data allow, the p-value that they could at worst lead to is given
beside the observed one. All tests are two-sided. Not here: intervals (bootstrap), peeking (sequential).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from hat_stats.arrays import Floats, binary, matrix, same_length, vector
from hat_stats.errors import InputError


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact McNemar test of two runs judged right or wrong on the same items."""

    a_only: int
    """Items that only a got right."""
    b_only: int
    both: int
    neither: int
    p: float
    p_worst: float
    """The largest p that the missing pairs could lead to; equal to p where none are missing."""
    n: int
    missing: int


@dataclass(frozen=True, slots=True)
class Wilcoxon:
    """Wilcoxon signed-rank test of paired scores."""

    statistic: float
    """The smaller of the two rank sums; 0 where every pair is tied."""
    p: float
    nonzero: int
    """Pairs that differ; only these carry information."""
    n: int
    missing: int


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Exact (binomial) McNemar test; a, b [n] of 0, 1 and NaN. Source: McNemar 1947; Fagerland et al. 2013."""
    a_n, b_n = binary(a, "a"), binary(b, "b")
    same_length("a, b", a_n, b_n)
    known = ~np.isnan(a_n) & ~np.isnan(b_n)
    right_a, right_b = a_n[known] == 1, b_n[known] == 1
    a_only, b_only = int((right_a & ~right_b).sum()), int((~right_a & right_b).sum())
    missing = int((~known).sum())
    fewer, more = sorted((a_only, b_only))
    worst = mcnemar_p(fewer + min(missing, more - fewer), more)
    both, neither = int((right_a & right_b).sum()), int((~right_a & ~right_b).sum())
    return McNemar(a_only, b_only, both, neither, mcnemar_p(a_only, b_only), worst, int(known.sum()), missing)


def mcnemar_p(a_only: int, b_only: int) -> float:
    """Two-sided exact p of `a_only` against `b_only` discordant pairs; 1 where there are none."""
    discordant = a_only + b_only
    if not discordant:
        return 1.0
    return float(stats.binomtest(a_only, discordant, 0.5).pvalue)


def fisher(table: Sequence[Sequence[int]]) -> float:
    """Two-sided exact p that two rows of (successes, failures) have one rate; 1 where a row is empty. Fisher 1922."""
    counts = matrix(table, "table")
    if counts.shape != (2, 2) or np.isnan(counts).any() or (counts < 0).any():
        raise InputError("two rows of two counts are compared", place="table")
    if not counts.sum(axis=1).all():
        return 1.0
    return float(stats.fisher_exact(counts).pvalue)


def wilcoxon(a: ArrayLike, b: ArrayLike) -> Wilcoxon:
    """Signed-rank test of a − b [n]; tied pairs are dropped (Wilcoxon 1945). All tied: p = 1, said by `nonzero` = 0."""
    a_n, b_n = vector(a, "a"), vector(b, "b")
    same_length("a, b", a_n, b_n)
    gap = a_n - b_n
    known = gap[~np.isnan(gap)]
    nonzero = int(np.count_nonzero(known))
    missing = len(gap) - known.size
    if not nonzero:
        return Wilcoxon(0.0, 1.0, 0, known.size, missing)
    result = stats.wilcoxon(known[known != 0])
    return Wilcoxon(float(result.statistic), float(result.pvalue), nonzero, known.size, missing)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given; they hold the chance of any false claim. Holm 1979."""
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that hold the expected share of false claims. Benjamini and Hochberg 1995."""
    p = _p_values(p_values)
    if not p.size:
        return []
    return [float(value) for value in stats.false_discovery_control(p, method="bh")]


def _p_values(values: Sequence[float]) -> Floats:
    p = vector(values, "p_values")
    if np.isnan(p).any() or (p < 0).any() or (p > 1).any():
        raise InputError("p-values lie in [0, 1] and none is missing", place="p_values")
    return p
