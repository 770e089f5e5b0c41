"""How far a judge agrees with people, and what its scores are worth once corrected (`hatstack.calibration/1`).

Always holds: a calibration names judge and labels by digest and keeps every verdict, so that another revision can be
compared on the same items (history); what the judge could not judge is counted by reason and in no rate. Not here:
making judgements (panel), the arithmetic (hat_stats).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from hat_components.judge.labels import Label, settle
from hat_components.judge.panel import Judgement, counted
from hat_components.judge.rubric import Criterion, Record
from hat_components.judge.spec import Judge
from hat_components.step import InputError
from hat_harness.digest import digest_json
from hat_stats.agreement import Agreement, Proportion, class_rates, cohen_kappa, confusion, krippendorff_alpha
from hat_stats.correction import Calibration as Counts
from hat_stats.correction import Corrected, corrected_rate

FORMAT: Literal["hatstack.calibration/1"] = "hatstack.calibration/1"


class Score(Record):
    """A coefficient or rate with its interval."""

    value: float | None
    """None where it is undefined; `state` says why."""
    low: float
    high: float
    n: int
    state: str = "ok"


class ClassScore(Record):
    """One label, against the others."""

    sensitivity: Score
    specificity: Score
    precision: Score


class CriterionCalibration(Record):
    """One criterion of one calibration."""

    agreement: float | None
    """Share of judged items on which judge and people agree."""
    kappa: Score
    """Cohen's, judge against people."""
    panel_alpha: Score | None = None
    """Krippendorff's among the members of the panel; None with one member."""
    people_alpha: Score | None = None
    """Krippendorff's among people; None where each item has one label."""
    classes: dict[str, ClassScore]
    labels: tuple[str, ...]
    """From the lowest score to the highest; rows and columns of `confusion`."""
    confusion: tuple[tuple[int, ...], ...]
    """Truth by row, judge by column."""
    counts: dict[str, int]
    """tp, fn, tn, fp of the highest label, for correcting scores."""
    raw: float | None
    """Share of the highest label that the judge gave on the labelled items."""
    truth: float | None
    """Share of the highest label in truth."""
    missing: dict[str, int]
    """Reason → items that the judge could not judge."""
    disputed: int = 0
    """Items on which people tied; they are in no rate."""


class JudgeCalibration(Record):
    """One judge on one set of labels (`hatstack.calibration/1`)."""

    format: Literal["hatstack.calibration/1"] = FORMAT
    judge: str
    """Digest of the judge."""
    name: str
    revision: int
    note: str = ""
    rubric: str
    """Digest of the rubric."""
    labels: str
    """Digest of the labels."""
    n: int
    """Labelled subjects."""
    criteria: dict[str, CriterionCalibration]
    verdicts: dict[str, dict[str, str]]
    """Subject → criterion → what the judge said, "" where it could not."""
    truth: dict[str, dict[str, str]]
    """Subject → criterion → what is true."""
    usage: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Member → requests, tokens, cost."""

    def counts(self, criterion: str) -> Counts:
        """The error counts of a criterion; InputError where it was not calibrated."""
        if criterion not in self.criteria:
            raise InputError(f"{criterion!r} was not calibrated", place=self.name, cure=", ".join(self.criteria))
        found = self.criteria[criterion]
        return Counts(**found.counts, missing=sum(found.missing.values()))


def calibrate(
    judge: Judge,
    judgements: Sequence[Judgement],
    labels: Iterable[Label],
    *,
    level: float = 0.95,
    seed: int = 1,
    usage: Mapping[str, Mapping[str, float]] | None = None,
) -> JudgeCalibration:
    """Hold judgements against labels of the same subjects. InputError where they share none."""
    given = list(labels)
    truth, disputed, raters = settle(judge.rubric, given)
    by_subject = {one.subject: one for one in judgements if one.subject in truth}
    if not by_subject:
        raise InputError("no labelled subject was judged", place="labels", cure="label subjects of these traces")
    names = [one.name for one in judge.rubric.criteria if any(one.name in row for row in truth.values())]
    found = {}
    for name in names:
        rows = [
            (row[name], by_subject[subject]) for subject, row in truth.items() if subject in by_subject and name in row
        ]
        criterion = judge.rubric.criterion(name)
        found[name] = _criterion(criterion, rows, raters[name], disputed[name], level, seed)
    listed = sorted((one.subject, one.criterion, one.label, one.rater) for one in given)
    return JudgeCalibration(
        judge=judge.digest,
        name=judge.name,
        revision=judge.revision,
        note=judge.note,
        rubric=judge.rubric.digest,
        labels=digest_json([list(row) for row in listed]),
        n=len(by_subject),
        criteria=found,
        verdicts={key: {n: r.label for n, r in one.rulings.items()} for key, one in sorted(by_subject.items())},
        truth={subject: truth[subject] for subject in sorted(by_subject)},
        usage={name: dict(values) for name, values in (usage or {}).items()},
    )


def corrected(
    calibration: JudgeCalibration, criterion: str, judgements: Sequence[Judgement], *, level: float = 0.95
) -> Corrected:
    """True share of the criterion's highest label among judged subjects, with the calibration's uncertainty."""
    best = calibration.criteria[criterion].labels[-1] if criterion in calibration.criteria else ""
    rulings = [one.rulings[criterion] for one in judgements]
    judged = [one for one in rulings if one.score is not None]
    positives = sum(one.label == best for one in judged)
    return corrected_rate(
        positives, len(judged), calibration.counts(criterion), missing=len(rulings) - len(judged), level=level
    )


def _criterion(
    criterion: Criterion,
    rows: Sequence[tuple[str, Judgement]],
    raters: Mapping[str, Mapping[str, str]],
    disputed: int,
    level: float,
    seed: int,
) -> CriterionCalibration:
    true = [label for label, _ in rows]
    said = [judgement.rulings[criterion.name].label or None for _, judgement in rows]
    best = criterion.labels[-1]
    counts = Counts.of([float(one == best) for one in true], [_one(one, best) for one in said])
    kappa = cohen_kappa(true, said, labels=criterion.labels, level=level)
    table = confusion(true, said, labels=criterion.labels)
    judged = [one for one in said if one is not None]
    rates = class_rates(true, said, labels=criterion.labels, level=level)
    return CriterionCalibration(
        agreement=kappa.observed,
        kappa=_score(kappa),
        panel_alpha=_panel_alpha(criterion.name, [one for _, one in rows], level, seed),
        people_alpha=_alpha(raters, level, seed),
        classes={
            str(label): ClassScore(
                sensitivity=_score(rate.sensitivity),
                specificity=_score(rate.specificity),
                precision=_score(rate.precision),
            )
            for label, rate in rates.items()
        },
        labels=criterion.labels,
        confusion=table.counts,
        counts={"tp": counts.tp, "fn": counts.fn, "tn": counts.tn, "fp": counts.fp},
        raw=judged.count(best) / len(judged) if judged else None,
        truth=true.count(best) / len(true) if true else None,
        missing=counted([judgement for _, judgement in rows]).get(criterion.name, {}),
        disputed=disputed,
    )


def _one(label: str | None, best: str) -> float:
    return math.nan if label is None else float(label == best)


def _score(found: Agreement | Proportion) -> Score:
    state = found.state if isinstance(found, Agreement) else ("ok" if found.n else "empty")
    return Score(value=found.value, low=found.low, high=found.high, n=found.n, state=state)


def _panel_alpha(criterion: str, judgements: Sequence[Judgement], level: float, seed: int) -> Score | None:
    """Agreement among members; checks are no members."""
    said: dict[str, dict[str, str]] = defaultdict(dict)
    for one in judgements:
        for vote in one.rulings[criterion].votes:
            if not vote.by.startswith("check:"):
                said[vote.by][one.subject] = vote.label
    return _alpha(said, level, seed)


def _alpha(raters: Mapping[str, Mapping[str, str]], level: float, seed: int) -> Score | None:
    if len(raters) < 2:
        return None
    subjects = sorted({subject for row in raters.values() for subject in row})
    rows = [[raters[name].get(subject) or None for subject in subjects] for name in sorted(raters)]
    return _score(krippendorff_alpha(rows, level=level, seed=seed))
