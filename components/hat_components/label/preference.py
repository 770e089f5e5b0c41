"""Who wins blind pairs, how surely, and why (`hatstack.preference/1`); agreement among raters for any project.

Always holds: an item counts once, by adjudication or majority; ties between raters that nobody decided are missing and
widen the interval; coefficients that are 0/0 have no value and say so. Not here: collecting ratings (store).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from hat_components.judge.calibration import Score
from hat_components.judge.rubric import Record
from hat_components.label.model import PREFERENCE, Decision, Project, Rating, Task
from hat_components.label.store import settled
from hat_stats.agreement import Agreement, cohen_kappa, krippendorff_alpha, proportion
from hat_stats.significance import mcnemar_p

FORMAT: Literal["hatstack.preference/1"] = "hatstack.preference/1"
FILE = "preference.json"


class Part(Record):
    """A count out of a total with Wilson's interval."""

    count: int
    share: float | None
    low: float
    high: float


class AgreementResult(Record):
    """How far raters agree on one criterion."""

    raters: int
    items: int
    """Items that at least two rated."""
    alpha: Score
    """Krippendorff's, over all raters; state `one_class` where all ratings are the same."""
    kappa: Score | None = None
    """Cohen's, where there are exactly two raters."""


class Preference(Record):
    """A blind comparison of two arms."""

    format: Literal["hatstack.preference/1"] = FORMAT
    project: str
    arms: tuple[str, str]
    pairs: int
    simulated: bool = False
    """The raters were simulated: the figures are a plan, not evidence about people."""
    a: Part
    """Pairs that arm a wins, of all pairs with a settled label."""
    tie: Part
    b: Part
    missing: int
    """Pairs without ratings, or on which raters tied and nobody decided."""
    share_a: Part
    """Wins of a among decided pairs, the missing ones included at their extremes."""
    p: float
    """Two-sided sign test of a against b over decided pairs."""
    causes: dict[str, dict[str, Part]]
    """Arm → cause → part of that arm's wins, every code listed."""
    intents: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Intent → a, tie, b."""
    agreement: AgreementResult


def preference(
    project: Project,
    tasks: Sequence[Task],
    ratings: Sequence[Rating],
    decisions: Iterable[Decision] = (),
    *,
    simulated: bool = False,
) -> Preference:
    """Count a pair project's settled labels."""
    final = {item: said for (item, criterion), said in settled(ratings, decisions).items() if criterion == PREFERENCE}
    wins = Counter(label for label, _ in final.values())
    missing = len(tasks) - len(final)
    decided = wins["a"] + wins["b"]
    share = proportion(wins["a"], decided, missing=missing)
    intents: dict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        if task.id in final:
            intents[task.intent][final[task.id][0]] += 1
    return Preference(
        project=project.name,
        arms=project.arms,
        pairs=len(tasks),
        simulated=simulated,
        a=_part(wins["a"], len(final)),
        tie=_part(wins["tie"], len(final)),
        b=_part(wins["b"], len(final)),
        missing=missing,
        share_a=Part(count=wins["a"], share=share.value, low=share.low, high=share.high),
        p=mcnemar_p(wins["a"], wins["b"]),
        causes={
            arm: _causes(project, [cause for label, cause in final.values() if label == side])
            for side, arm in (("a", project.arms[0]), ("b", project.arms[1]))
        },
        intents={
            intent: {side: counts[side] for side in ("a", "tie", "b")} for intent, counts in sorted(intents.items())
        },
        agreement=agreement(project, ratings, PREFERENCE),
    )


def agreement(project: Project, ratings: Iterable[Rating], criterion: str, *, seed: int = 1) -> AgreementResult:
    """Agreement among a project's raters on one criterion."""
    table: dict[str, dict[str, str]] = defaultdict(dict)
    for one in ratings:
        if one.criterion == criterion:
            table[one.account][one.item] = one.label
    items = sorted({item for row in table.values() for item in row})
    shared = [item for item in items if sum(item in row for row in table.values()) > 1]
    accounts = sorted(table)
    rows = [[table[account].get(item) for item in shared] for account in accounts]
    empty = Score(value=None, low=-1.0, high=1.0, n=0, state="empty")
    known = project.criterion(criterion)
    kappa = None
    if len(rows) == 2 and shared:
        kappa = _score(cohen_kappa(rows[0], rows[1], labels=known.labels if known else None))
    alpha = _score(krippendorff_alpha(rows, seed=seed)) if len(rows) > 1 and shared else empty
    return AgreementResult(raters=len(accounts), items=len(shared), alpha=alpha, kappa=kappa)


def _causes(project: Project, causes: Sequence[str]) -> dict[str, Part]:
    counts = Counter(causes)
    names = [*project.causes, *(("",) if counts[""] else ())]
    return {name or "none_given": _part(counts[name], len(causes)) for name in names}


def _part(count: int, n: int) -> Part:
    found = proportion(count, n)
    return Part(count=count, share=found.value, low=found.low, high=found.high)


def _score(found: Agreement) -> Score:
    return Score(value=found.value, low=found.low, high=found.high, n=found.n, state=found.state)
