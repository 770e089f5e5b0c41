"""Compares evaluations in pairs: the same items, suite by suite, with interval, adjusted p and words.

Always holds: a difference is a − b over items that both have, a being the candidate; suites that were played under other
states or items are refused rather than compared; p-values are two-sided and Holm-adjusted over the suites of one
comparison, and "better" needs both interval and adjusted p. Not here: the statistics (hat_stats), showing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hat_components.evaluate.result import Evaluation, SuiteResult
from hat_components.step import InputError
from hat_stats.bootstrap import Contrast, paired_bootstrap
from hat_stats.significance import holm
from hat_stats.verdict import Wording, verdict


@dataclass(frozen=True)
class Compared:
    """One contrast; figures are shares, not percent."""

    label: str
    suite: str
    metric: str
    n: int
    """Items that both sides have."""
    a: float
    """Mean of the candidate over those items."""
    b: float
    delta: float
    low: float
    high: float
    p_le_0: float
    """Share of resampled differences at or below 0."""
    p: float
    """Two-sided and Holm-adjusted over the comparison."""
    kind: str
    """better, worse, equivalent, no_difference_shown or inconclusive."""
    text: str
    """The same in a sentence."""


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    suites: Sequence[str] = (),
    margin: float | None = None,
    draws: int = 10_000,
    seed: int = 1,
) -> list[Compared]:
    """Every suite that both have (or those named), a against b; `margin` in shares lets two be called equivalent.

    Raises `InputError` when items, harness or seeds differ, or when no suite is shared.
    """
    for what, left, right in (("items", a.dataset, b.dataset), ("harness", a.harness, b.harness)):
        if left != right:
            raise InputError(
                f"the evaluations were made with different {what} ({left[:19]}, {right[:19]})",
                place=f"{a.arm}, {b.arm}",
                cure="evaluate both with the same dataset and harness",
            )
    shared = [suite.id for suite in a.suites if b.suite(suite.id) is not None]
    chosen = list(suites) or shared
    missing = [ident for ident in chosen if ident not in shared]
    if missing or not chosen:
        raise InputError(
            f"not in both evaluations: {', '.join(missing) or 'any suite'}",
            place=f"{a.arm}, {b.arm}",
            cure=f"suites that both have: {', '.join(shared) or 'none'}",
        )
    pairs = [(_suite(a, ident), _suite(b, ident)) for ident in chosen]
    labelled = [(f"{one.id.capitalize()}: {a.arm} − {b.arm}", one, other) for one, other in pairs]
    return contrasts(labelled, names=(a.arm, b.arm), margin=margin, draws=draws, seed=seed)


def shifts(evaluation: Evaluation, *, draws: int = 10_000, seed: int = 1) -> list[Compared]:
    """Within one evaluation: every suite against the one that it is paired with (T2 − T1, …)."""
    labelled = [
        (f"{evaluation.arm}: {suite.id.capitalize()} − {base.id.capitalize()}", suite, base)
        for suite in evaluation.suites
        if (base := evaluation.suite(suite.paired_with)) is not None
    ]
    return contrasts(labelled, names=("the edited harness", "the original"), draws=draws, seed=seed)


def contrasts(
    labelled: Sequence[tuple[str, SuiteResult, SuiteResult]],
    *,
    names: tuple[str, str],
    margin: float | None = None,
    draws: int = 10_000,
    seed: int = 1,
) -> list[Compared]:
    """The contrasts (label, a, b) as one family for Holm's adjustment; pairs without a shared item are left out."""
    made: list[tuple[str, SuiteResult, Contrast, float, float]] = []
    tails: list[float] = []
    for label, one, other in labelled:
        left, right = one.values(one.headline), other.values(one.headline)
        shared = sorted(set(left) & set(right))
        if shared:
            a_n, b_n = [left[item] for item in shared], [right[item] for item in shared]
            found = paired_bootstrap(a_n, b_n, draws=draws, seed=seed)
            made.append((label, one, found, sum(a_n) / len(a_n), sum(b_n) / len(b_n)))
            # Not 1 − P(Δ ≤ 0): draws with Δ = 0 count on both sides, so that equal runs have p = 1.
            above = paired_bootstrap(b_n, a_n, draws=draws, seed=seed).p_le_0
            tails.append(min(1.0, 2 * min(found.p_le_0, above)))
    adjusted = holm(tails)
    wording = Wording(a=names[0], b=names[1], digits=1)
    rows = []
    for (label, one, found, a_mean, b_mean), p in zip(made, adjusted, strict=True):
        says = verdict(found, wording=wording, margin=margin, p_adjusted=p)
        rows.append(
            Compared(
                label=label,
                suite=one.id,
                metric=one.headline,
                n=found.n,
                a=a_mean,
                b=b_mean,
                delta=found.delta or 0.0,
                low=found.low,
                high=found.high,
                p_le_0=found.p_le_0,
                p=p,
                kind=says.kind,
                text=says.text_en,
            )
        )
    return rows


def _suite(evaluation: Evaluation, ident: str) -> SuiteResult:
    found = evaluation.suite(ident)
    assert found is not None
    return found
