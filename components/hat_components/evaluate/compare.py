"""Compares evaluations in pairs: the same items, suite by suite, with interval, adjusted p and words.

Always holds: a difference is a − b over items that both have, a being the candidate; suites that were played under other
states or items are refused rather than compared; p-values are two-sided and Holm-adjusted over all contrasts of one
comparison (suites, attack success and families), and "better" needs both interval and adjusted p. Not here: the
statistics (hat_stats), reading large evaluations (compare_read), showing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hat_components.evaluate.adversarial import LOWER_IS_BETTER, METRIC
from hat_components.step import InputError
from hat_stats.bootstrap import Contrast, paired_bootstrap
from hat_stats.significance import holm
from hat_stats.verdict import Wording, verdict

Across = Literal["model", "harness"]
"""What may differ between the two: the policy under one harness, or the harness under one policy."""


class ScoredSuite(Protocol):
    """One suite's scores, as `SuiteResult` and `compare_read.LeanSuite` hold them."""

    @property
    def id(self) -> str:
        """Id of the suite."""

    @property
    def headline(self) -> str:
        """The metric that stands for it."""

    @property
    def paired_with(self) -> str:
        """Suite whose items these are, "" for none."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of its items."""

    def values(self, metric: str) -> Mapping[str, float]:
        """Item id → score."""

    def members(self, family: str) -> frozenset[str]:
        """Items whose state has a rewrite of the family."""

    @property
    def family_names(self) -> tuple[str, ...]:
        """Rewrite families of its states."""


class Scored(Protocol):
    """One evaluation's scores, as `Evaluation` and `compare_read.LeanEvaluation` hold them."""

    @property
    def arm(self) -> str:
        """Name of what was evaluated."""

    @property
    def policy(self) -> str:
        """Kind of policy, or model name at an endpoint."""

    @property
    def model(self) -> str:
        """Digest of the model, "" without one."""

    @property
    def harness(self) -> str:
        """Digest of the harness."""

    @property
    def dataset(self) -> str:
        """Digest of the items."""

    @property
    def suites(self) -> Sequence[ScoredSuite]:
        """Its suites."""

    def suite(self, ident: str) -> ScoredSuite | None:
        """The suite called `ident`, or None."""


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
    text_zh: str = ""
    family: str = ""
    """Rewrite family whose items alone are compared; "" for all."""


@dataclass(frozen=True)
class Pairing:
    """One contrast to make: item → score on each side."""

    label: str
    suite: str
    metric: str
    left: Mapping[str, float]
    right: Mapping[str, float]
    family: str = ""


def compare(
    a: Scored,
    b: Scored,
    *,
    suites: Sequence[str] = (),
    across: Across = "model",
    families: bool = False,
    margin: float | None = None,
    draws: int = 10_000,
    seed: int = 1,
) -> list[Compared]:
    """Every suite that both have (or those named), a against b; `margin` in shares lets two be called equivalent.

    Suites under attack are also compared by their attack success; with `families` every suite also by the items of each
    rewrite family. Raises `InputError` when what must be the same differs, or when no suite is shared.
    """
    _refuse_unlike(a, b, across)
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
    made = [one for pair in pairs for one in _pairings(*pair, names(a, b), families)]
    return decide(made, names=names(a, b), margin=margin, draws=draws, seed=seed)


def names(a: Scored, b: Scored) -> tuple[str, str]:
    """What the two are called: their arms, or where these are the same, arms and harness digests."""
    if a.arm != b.arm:
        return a.arm, b.arm
    told = [one.harness[7:15] if a.harness != b.harness else (one.model or one.policy)[-8:] for one in (a, b)]
    return (f"{a.arm} {told[0]}", f"{b.arm} {told[1]}") if told[0] != told[1] else (f"{a.arm} (a)", f"{b.arm} (b)")


def _refuse_unlike(a: Scored, b: Scored, across: Across) -> None:
    same = {"items": (a.dataset, b.dataset)}
    if across == "model":
        same["harness"] = (a.harness, b.harness)
    else:
        same["policies"] = (a.model or a.policy, b.model or b.policy)
    for what, (left, right) in same.items():
        if left != right:
            raise InputError(
                f"the evaluations were made with different {what} ({left[:19]}, {right[:19]})",
                place=f"{a.arm}, {b.arm}",
                cure="evaluate both with the same dataset and " + ("harness" if across == "model" else "model"),
            )


def shifts(evaluation: Scored, *, draws: int = 10_000, seed: int = 1) -> list[Compared]:
    """Within one evaluation: every suite against the one that it is paired with (T2 − T1, …)."""
    labelled = [
        (f"{evaluation.arm}: {suite.id.capitalize()} − {base.id.capitalize()}", suite, base)
        for suite in evaluation.suites
        if (base := evaluation.suite(suite.paired_with)) is not None
    ]
    return contrasts(labelled, names=("the edited harness", "the original"), draws=draws, seed=seed)


def contrasts(
    labelled: Sequence[tuple[str, ScoredSuite, ScoredSuite]],
    *,
    names: tuple[str, str],
    margin: float | None = None,
    draws: int = 10_000,
    seed: int = 1,
) -> list[Compared]:
    """The contrasts (label, a, b) as one family for Holm's adjustment; pairs without a shared item are left out."""
    made = [
        Pairing(label, one.id, one.headline, one.values(one.headline), other.values(one.headline))
        for label, one, other in labelled
    ]
    return decide(made, names=names, margin=margin, draws=draws, seed=seed)


def decide(
    pairings: Sequence[Pairing],
    *,
    names: tuple[str, str],
    margin: float | None = None,
    draws: int = 10_000,
    seed: int = 1,
) -> list[Compared]:
    """Interval, Holm-adjusted p and words for every pairing that has a shared item."""
    made: list[tuple[Pairing, Contrast, float, float]] = []
    tails: list[float] = []
    for pairing in pairings:
        shared = sorted(pairing.left.keys() & pairing.right.keys())
        if shared:
            a_n, b_n = ([side[item] for item in shared] for side in (pairing.left, pairing.right))
            found = paired_bootstrap(a_n, b_n, draws=draws, seed=seed)
            made.append((pairing, found, sum(a_n) / len(a_n), sum(b_n) / len(b_n)))
            tails.append(found.p)
    return [_told(*row, p, names, margin) for row, p in zip(made, holm(tails) if tails else [], strict=True)]


def _told(
    pairing: Pairing, found: Contrast, a: float, b: float, p: float, names: tuple[str, str], margin: float | None
) -> Compared:
    wording = Wording(
        a=names[0], b=names[1], a_zh=names[0], b_zh=names[1], digits=1,
        higher_is_better=pairing.metric not in LOWER_IS_BETTER,
    )  # fmt: skip
    says = verdict(found, wording=wording, margin=margin, p_adjusted=p)
    return Compared(
        label=pairing.label,
        suite=pairing.suite,
        metric=pairing.metric,
        n=found.n,
        a=a,
        b=b,
        delta=found.delta or 0.0,
        low=found.low,
        high=found.high,
        p_le_0=found.p_le_0,
        p=p,
        kind=says.kind,
        text=says.text_en,
        text_zh=says.text_zh,
        family=pairing.family,
    )


def _pairings(one: ScoredSuite, other: ScoredSuite, names: tuple[str, str], families: bool) -> Iterator[Pairing]:
    """The headline, attack success where there is one, and each family of the suite."""
    head = f"{one.id.capitalize()}: {names[0]} − {names[1]}"
    left, right = one.values(one.headline), other.values(one.headline)
    yield Pairing(head, one.id, one.headline, left, right)
    if METRIC in one.metrics and METRIC in other.metrics:
        yield Pairing(f"{head}, attack success", one.id, METRIC, one.values(METRIC), other.values(METRIC))
    for family in one.family_names if families else ():
        among = one.members(family) & other.members(family)
        rows = [{item: side[item] for item in side.keys() & among} for side in (left, right)]
        yield Pairing(f"{head}, {family}", one.id, one.headline, rows[0], rows[1], family)


def _suite(evaluation: Scored, ident: str) -> ScoredSuite:
    found = evaluation.suite(ident)
    assert found is not None
    return found
