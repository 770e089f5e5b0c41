"""A judge over time: what changed between two calibrations, and its agreement by revision.

Always holds: two calibrations are only compared on items that both judged under the same truth; a change of the judged
mix and a change of being right are two tests, each at half of alpha. Not here: calibrating (calibration).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from hat_components.judge.calibration import JudgeCalibration
from hat_components.judge.rubric import Record
from hat_components.step import InputError
from hat_stats.bootstrap import paired_bootstrap
from hat_stats.drift import drift_categories
from hat_stats.significance import fisher, holm, mcnemar
from hat_stats.verdict import Wording, verdict

_WORDS = Wording(
    a="the new judge",
    b="the old one",
    a_zh="新评审",
    b_zh="旧评审",
    unit="points of agreement",
    unit_zh="个百分点的一致率",
)


class Shift(Record):
    """How one criterion's verdicts differ between two calibrations on the items they share."""

    shared: int
    changed: int
    """Shared items that got another label or none."""
    agreement_before: float | None
    agreement_after: float | None
    p: float
    """Exact McNemar of right-before against right-after: did the judge get better or worse?"""
    drift_p: float
    """Did the mix of verdicts move, missing ones included?"""
    alarm: bool
    """One of the two p below alpha (each at half of it)."""
    text_en: str
    text_zh: str


def shift(
    before: JudgeCalibration, after: JudgeCalibration, criterion: str, *, alpha: float = 0.01, seed: int = 1
) -> Shift:
    """What changed on the items that both judged: after a new revision, a new model, or none at all.

    InputError where the two share no labelled item.
    """
    both = [
        key
        for key, row in before.truth.items()
        if criterion in row and after.truth.get(key, {}).get(criterion) == row[criterion]
    ]
    if not both:
        raise InputError(f"no shared item of {criterion!r}", place="calibrations", cure="calibrate on the same labels")
    old = [before.verdicts[key].get(criterion, "") or None for key in both]
    new = [after.verdicts[key].get(criterion, "") or None for key in both]
    true = [before.truth[key][criterion] for key in both]
    right_old, right_new = _right(old, true), _right(new, true)
    test = mcnemar(_floats(right_new), _floats(right_old))
    moved = drift_categories(old, new, alpha=alpha / 2, draws=max(2000, int(4 / alpha)), seed=seed)
    alarm = test.p <= alpha / 2 or moved.alarm
    said = verdict(paired_bootstrap(_floats(right_new), _floats(right_old), seed=seed), wording=_WORDS)
    return Shift(
        shared=len(both),
        changed=sum(one != other for one, other in zip(old, new, strict=True)),
        agreement_before=_share(right_old),
        agreement_after=_share(right_new),
        p=test.p,
        drift_p=moved.p,
        alarm=alarm,
        text_en=said.text_en,
        text_zh=said.text_zh,
    )


class RateShift(Record):
    """How the judge's error rates differ between two calibrations on different items, such as another model's replies."""

    sensitivity_p: float
    """Fisher's exact test of the two sensitivities, Holm-adjusted with the other."""
    specificity_p: float
    alarm: bool
    """One of the two is below alpha: corrections of the one do not hold for the other."""


def rate_shift(before: JudgeCalibration, after: JudgeCalibration, criterion: str, *, alpha: float = 0.01) -> RateShift:
    """Whether a correction carries over: to another model, another month, another scenario."""
    old, new = before.counts(criterion), after.counts(criterion)
    adjusted = holm(
        [
            fisher([[old.tp, old.fn], [new.tp, new.fn]]),
            fisher([[old.tn, old.fp], [new.tn, new.fp]]),
        ]
    )
    return RateShift(sensitivity_p=adjusted[0], specificity_p=adjusted[1], alarm=min(adjusted) <= alpha)


def read_history(path: Path) -> list[JudgeCalibration]:
    """Calibrations, oldest first, one per line; InputError for a damaged line."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found.append(JudgeCalibration.model_validate_json(line))
        except ValidationError as error:
            raise InputError(
                "not a hatstack.calibration/1", place=f"{path}:{number}", cure="remove the line"
            ) from error
    return found


def agreement_by_revision(history: Sequence[JudgeCalibration]) -> list[dict[str, float | int | str | None]]:
    """One row per calibration and criterion: the judge's agreement as it was developed."""
    return [
        {
            "revision": one.revision,
            "note": one.note,
            "judge": one.judge,
            "criterion": name,
            "n": one.n,
            "agreement": found.agreement,
            "kappa": found.kappa.value,
            "kappa_low": found.kappa.low,
            "kappa_high": found.kappa.high,
        }
        for one in history
        for name, found in one.criteria.items()
    ]


def _right(said: Sequence[str | None], true: Sequence[str]) -> list[float | None]:
    return [None if one is None else float(one == truth) for one, truth in zip(said, true, strict=True)]


def _share(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
