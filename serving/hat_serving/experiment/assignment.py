"""Sticky assignment of units to arms by hash (CONTRACTS.md "Assignment, promotion, abort").

Always holds: the same unit, salt and weights give the same arm on every replica, after every restart; while arms grow
within their equal share (one arm against the control: up to 100 %), a unit leaves the control at most once; a unit is in
at most one experiment of an exclusion group.
Not here: exposure logging, running conversations (the gateway keeps a conversation on its arm).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hat_serving.errors import SettingsError

SLOTS = 10_000
"""Weights have a resolution of 0.01 %."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: `weight` in percent of the units, `release` the digest that it serves."""

    name: str
    weight: float
    release: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Arms with their weights; the first is the control, which takes what the others leave.

    `overrides` pins units to arms.
    """

    salt: str
    arms: tuple[Arm, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check names and weights."""
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) != len(names):
            raise SettingsError("arms need names of their own", place=f"split {self.salt}")
        total = sum(arm.weight for arm in self.arms)
        if any(arm.weight < 0 for arm in self.arms) or abs(total - 100) > 1e-6:
            raise SettingsError(f"weights sum to {total:g}", place=f"split {self.salt}", cure="make them sum to 100")
        unknown = set(self.overrides.values()) - set(names)
        if unknown:
            raise SettingsError(f"override to unknown arm {sorted(unknown)[0]!r}", place=f"split {self.salt}")


def slot(unit: str, salt: str) -> int:
    """The unit's slot in [0, SLOTS): SHA-256 of salt and unit, uniform and independent between salts."""
    digest = hashlib.sha256(f"{len(salt)}:{salt}:{unit}".encode()).digest()
    return int.from_bytes(digest[:8], "big") * SLOTS >> 64


def assign(unit: str, split: Split) -> Arm:
    """The arm of a unit."""
    pinned = split.overrides.get(unit)
    if pinned is not None:
        return next(arm for arm in split.arms if arm.name == pinned)
    return split.arms[_table(tuple(arm.weight for arm in split.arms))[slot(unit, split.salt)]]


@lru_cache(maxsize=256)
def _table(weights: tuple[float, ...]) -> bytes:
    """Slot → index of its arm.

    Every arm but the control owns an equal region and fills it from its start, so growing an arm within its region only
    adds slots to it. An arm above its region goes on into slots that nobody fills, from the far end of all.
    """
    others = len(weights) - 1
    table = bytearray(SLOTS)
    if not others:
        return bytes(table)
    region = SLOTS // others
    wanted = [round(weight * SLOTS / 100) for weight in weights[1:]]
    for index, count in enumerate(wanted):
        for position in range(index * region, index * region + min(count, region)):
            table[position] = index + 1
    for index, count in enumerate(wanted):
        free = [position for position in range(SLOTS - 1, -1, -1) if table[position] == 0]
        for position in free[: max(0, count - region)]:
            table[position] = index + 1
    return bytes(table)


@dataclass(frozen=True, slots=True)
class Trial:
    """A running experiment as assignment sees it: a part of its exclusion group, and a split of that part."""

    name: str
    group: str
    low: int
    high: int
    """Slots [low, high) of the group belong to the experiment; groups of one name are cut without overlap."""
    split: Split
    unit: str = "viewer"
    """`viewer`, `conversation` or `room`."""
    shadows: tuple[tuple[str, float], ...] = ()
    """(arm, percent of the control's turns) that get a copy."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The arm of a new conversation. `trial` is None outside of every experiment; `counted` is False for overrides."""

    arm: str
    unit: str
    trial: Trial | None = None
    counted: bool = True


def place(units: Mapping[str, str], split: Split, trials: Sequence[Trial]) -> Assigned:
    """The arm of a conversation whose units are `units` (kind → pseudonym); a pinned viewer first, then trials, then all."""
    viewer = units["viewer"]
    if viewer in split.overrides:
        return Assigned(split.overrides[viewer], viewer, counted=False)
    for trial in trials:
        unit = units.get(trial.unit) or units["viewer"]
        if unit in trial.split.overrides:
            return Assigned(trial.split.overrides[unit], unit, trial, counted=False)
        if trial.low <= slot(unit, f"group:{trial.group}") < trial.high:
            return Assigned(assign(unit, trial.split).name, unit, trial)
    return Assigned(assign(viewer, split).name, viewer)
