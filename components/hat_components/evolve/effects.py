"""Two measurements of the same items: what was fixed and broken, by intent and hook, and how many errors are left.

Always holds: turns pair up by item and number; differences are means over items, so that long items weigh no more than
short ones; a hook is only said to have fired on a turn, never to have caused the change. Not here: measuring (measure).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from hat_components.evolve.measure import Measured, Row
from hat_components.evolve.result import Case, Difference, Effect, Tally
from hat_components.step import InputError
from hat_stats.bootstrap import paired_bootstrap
from hat_stats.verdict import Wording, verdict

_Keys = Callable[[Row], tuple[str, ...]]
CASES = 200
"""Changed turns that a result keeps."""


def effect(
    before: Measured, after: Measured, *, objective: str, against: str, name: str, draws: int, seed: int
) -> Effect:
    """What the harness `name` changed against the stage `against`, for one policy."""
    if [(row.item, row.turn) for row in before.rows] != [(row.item, row.turn) for row in after.rows]:
        raise InputError("the measurements are not of the same items", place=f"{against}, {name}")
    pairs = list(zip(before.rows, after.rows, strict=True))
    fixed = [pair for pair in pairs if pair[0].error and not pair[1].error]
    broken = [pair for pair in pairs if not pair[0].error and pair[1].error]
    said = {
        metric: difference(after.by_item(metric), before.by_item(metric), a=name, b=against, draws=draws, seed=seed)
        for metric in ("accuracy", "effectiveness", objective)
    }
    return Effect(
        against=against,
        fixed=len(fixed),
        broken=len(broken),
        still_wrong=sum(one.error and other.error for one, other in pairs),
        accuracy=said["accuracy"],
        effectiveness=said["effectiveness"],
        objective=said[objective],
        intents=_tally(pairs, lambda row: (row.intent,)),
        hooks=_tally(pairs, lambda row: row.hooks or ("",)),
        cases=tuple(_case(*pair) for pair in [*broken, *fixed][:CASES]),
    )


def difference(
    after: Sequence[float], before: Sequence[float], *, a: str, b: str, draws: int, seed: int, fewer: bool = False
) -> Difference:
    """The paired difference after − before over items, in words; `fewer`: less is better."""
    found = paired_bootstrap(after, before, draws=draws, seed=seed)
    wording = Wording(a=a, b=b, a_zh=a, b_zh=b, digits=1, higher_is_better=not fewer)
    said = verdict(found, wording=wording)
    return Difference(
        delta=found.delta or 0.0,
        low=found.low,
        high=found.high,
        p=found.p,
        kind=said.kind,
        text=said.text_en,
        text_zh=said.text_zh,
    )


def reduction(before: Measured, after: Measured, *, draws: int, seed: int) -> tuple[float | None, float, float]:
    """(errors before − after) / errors before, with a 95 % percentile interval over resampled items.

    (None, -1, 1) where there was no error before; draws without errors before are left out. Where resampling shows no
    spread (nothing changed, or nothing is left), the largest share of items that so many alike leave possible stands in.
    """
    counts = np.zeros((2, len(before.items)))
    place = {item: index for index, item in enumerate(before.items)}
    for side, measured in enumerate((before, after)):
        for row in measured.rows:
            counts[side, place[row.item]] += row.error
    was, now = counts.sum(axis=1)
    if not was:
        return None, -1.0, 1.0
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, counts.shape[1], size=(draws, counts.shape[1]))
    sums = counts[:, drawn].sum(axis=2)
    known = sums[0] > 0
    shares = 1.0 - sums[1][known] / sums[0][known]
    low, high = np.quantile(shares, (0.025, 0.975))
    value = float(1.0 - now / was)
    if high - low < 1e-12:
        unseen = (1.0 - 0.025 ** (1.0 / counts.shape[1])) * len(before.rows) / was
        return value, max(-1.0, value - unseen), min(1.0, value + unseen)
    return value, float(low), float(high)


def gains(before: Measured, after: Measured) -> list[float]:
    """Per item by how much the share of wrong turns fell; the unit in which policies are contrasted."""
    was, now = before.by_item("error"), after.by_item("error")
    return [one - other for one, other in zip(was, now, strict=True)]


def gain_contrast(first: list[float], other: list[float], *, a: str, b: str, draws: int, seed: int) -> Difference:
    """How much more an edit helped policy `a` than policy `b`, paired by item; gains are in [-1, 1]."""
    found = paired_bootstrap(other, first, draws=draws, seed=seed, bounds=(-1.0, 1.0))
    wording = Wording(a=f"the gain of {a}", b=f"that of {b}", a_zh=f"{a} 的增益", b_zh=f"{b} 的增益", digits=1)
    said = verdict(found, wording=wording)
    return Difference(
        delta=found.delta or 0.0, low=found.low, high=found.high, p=found.p, kind=said.kind,
        text=said.text_en, text_zh=said.text_zh,
    )  # fmt: skip


def _tally(pairs: Sequence[tuple[Row, Row]], keys: _Keys) -> dict[str, Tally]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for before, after in pairs:
        for key in keys(after):
            row = counts[key]
            row[0] += before.error and not after.error
            row[1] += after.error and not before.error
            row[2] += 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1][0] - pair[1][1], pair[0]))
    return {key: Tally(fixed=fixed, broken=broken, n=n) for key, (fixed, broken, n) in ordered}


def _case(before: Row, after: Row) -> Case:
    return Case(
        item=after.item,
        turn=after.turn,
        intent=after.intent,
        before=before.causes,
        after=after.causes,
        hooks=after.hooks,
    )
