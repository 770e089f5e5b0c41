"""The reward composer: several rewards of a rollout become one advantage, comparable within its group and batch.

GDPO (arXiv 2601.05242), derived anew. Over group g, with value r[i,k] of rollout i and term k:

    z[i,k] = (r[i,k] - mean_g r[k]) / (max(std_g r[k], floor[k]) + EPSILON)      normalised terms
    z[i,k] =  r[i,k] - mean_g r[k]                                                raw terms, which keep their scale
    a[i]   = sum_k weight[k] z[i,k]          A[i] = a[i] / (std_batch a + EPSILON)

Always holds: the sum of `a` over a group is zero, so A is also whitened by its mean; a value that is NaN takes no part
in any mean; a rollout with no value at all has the advantage 0; standard deviations divide by n - 1. Everything is
float64. N rollouts, group by group, G to a group. Not here: where values come from (values), the policy loss (loss).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from hat_components.model.settings import Settings

Array = npt.NDArray[np.float64]

EPSILON = 1e-4
"""Added to every standard deviation."""

ALIKE = 1e-9
"""Values that differ by no more are the same value."""


class Term(Settings):
    """How one reward enters the advantage."""

    weight: float = 1.0
    """Factor of the normalised or raw term."""
    raw: bool = False
    """Keep the values' own scale; they are centred on their group, as everything is."""
    floor: float = Field(default=0.0, ge=0)
    """Least standard deviation to divide by, so that a deviation that means nothing is not blown up to 1."""
    gate: str = ""
    """Name of a term that must pass for this one to count; "" for none."""
    gate_at: float = 1.0
    """Value from which the gate passes."""
    closed: Literal["zero", "exclude"] = "zero"
    """Behind a closed gate the value is 0 (earned nothing), or takes no part (only those that passed are compared)."""


@dataclass(frozen=True, slots=True)
class Composed:
    """What became of a batch."""

    composite: Array
    """[N] the sum `a`; NaN where a rollout has no value at all."""
    advantage: Array
    """[N] what multiplies the policy gradient; 0 where `composite` is NaN."""
    means: Mapping[str, float]
    """Term → mean of its values before gates, NaN left out."""
    dead: int
    """Groups whose rollouts all have the same composite: they teach nothing."""
    dead_terms: Mapping[str, int]
    """Term → groups in which its gated values do not differ."""


def compose(rewards: Mapping[str, npt.ArrayLike], terms: Mapping[str, Term], group: int) -> Composed:
    """One advantage for each rollout. `rewards`: term → [N] values, None or NaN where there is none; N a multiple of
    `group`. Raises ValueError where names or lengths do not fit together."""
    if unknown := sorted(set(terms) - set(rewards)):
        raise ValueError(f"terms without rewards: {', '.join(unknown)}")
    values = {name: np.asarray(rewards[name], dtype=np.float64) for name in terms}
    shapes = {array.shape for array in values.values()}
    if not terms or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError("rewards need one value for each rollout, the same number for each term")
    (count,) = next(iter(shapes))
    if group < 1 or not count or count % group:
        raise ValueError(f"{count} rollouts are not whole groups of {group}")
    if any(np.isinf(array).any() for array in values.values()):
        raise ValueError("a reward is infinite")
    gated = {name: _gated(values, name, term).reshape(-1, group) for name, term in terms.items()}
    parts = [terms[name].weight * _normalised(array, terms[name]) for name, array in gated.items()]
    total = np.sum([np.nan_to_num(part) for part in parts], axis=0)
    scored = ~np.all([np.isnan(part) for part in parts], axis=0)
    composite = np.where(scored, total, np.nan)
    return Composed(
        composite=composite.ravel(),
        advantage=whiten(composite, group).ravel(),
        means={
            name: float(np.nanmean(array)) if not np.isnan(array).all() else np.nan for name, array in values.items()
        },
        dead=int(_dead(composite).sum()),
        dead_terms={name: int(_dead(array).sum()) for name, array in gated.items()},
    )


def whiten(composite: npt.ArrayLike, group: int) -> Array:
    """[N] composites → [N] advantages: centred on their group, over the deviation of the batch. This is GRPO with
    batch scaling; with composites whose groups sum to zero it is GDPO's whitening."""
    rows = np.asarray(composite, dtype=np.float64).reshape(-1, group)
    known = ~np.isnan(rows)
    counts = np.maximum(known.sum(axis=1, keepdims=True), 1)
    centred = rows - np.where(known, rows, 0.0).sum(axis=1, keepdims=True) / counts
    every = rows[known]
    deviation = float(np.std(every, ddof=1)) if every.size > 1 else 0.0
    return np.where(known, centred / (deviation + EPSILON), 0.0).ravel()


def length_penalty(tokens: npt.ArrayLike, free: float = 100.0, full: float = 200.0) -> Array:
    """q(L) in [0, 1]: 0 up to `free` tokens of reasoning, 1 from `full` on, linear between (paper, Figure 6)."""
    if full <= free:
        raise ValueError("the penalty needs full > free")
    length = np.asarray(tokens, dtype=np.float64)
    return np.asarray(np.clip((length - free) / (full - free), 0.0, 1.0))


def check_terms(terms: Mapping[str, Term]) -> None:
    """Raise ValueError where a gate names no other term or gates form a circle."""
    for name in terms:
        seen, at = {name}, terms[name].gate
        while at:
            if at not in terms:
                raise ValueError(f"the gate {at!r} of {name!r} is no term")
            if at in seen:
                raise ValueError(f"the gates of {name!r} form a circle")
            seen.add(at)
            at = terms[at].gate


def _gated(values: Mapping[str, Array], name: str, term: Term) -> Array:
    """Values of a term behind its gate, which looks at the other term's own values. A gate of NaN is closed."""
    if not term.gate:
        return values[name]
    if term.gate not in values:
        raise ValueError(f"the gate {term.gate!r} of {name!r} is no term")
    opened = values[term.gate] >= term.gate_at  # NaN compares false
    missing = np.isnan(values[name])
    return np.where(opened | missing, values[name], 0.0 if term.closed == "zero" else np.nan)


def _normalised(rows: Array, term: Term) -> Array:
    """[groups, G] values → z or centred values; NaN stays NaN."""
    known = ~np.isnan(rows)
    counts = known.sum(axis=1, keepdims=True)
    filled = np.where(known, rows, 0.0)
    centred = rows - filled.sum(axis=1, keepdims=True) / np.maximum(counts, 1)
    if term.raw:
        return np.asarray(centred)
    squares = np.where(known, centred, 0.0) ** 2
    deviation = np.sqrt(squares.sum(axis=1, keepdims=True) / np.maximum(counts - 1, 1))
    return np.asarray(centred / (np.maximum(deviation, term.floor) + EPSILON))


def _dead(rows: Array) -> npt.NDArray[np.bool_]:
    """[groups, G] → [groups]: whether the values that there are do not differ."""
    known = ~np.isnan(rows)
    highest = np.where(known, rows, -np.inf).max(axis=1)
    lowest = np.where(known, rows, np.inf).min(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((highest - lowest <= ALIKE) | (known.sum(axis=1) < 2))
