"""Harness-state augmentation: typed, seeded rewrites of a harness and of everything that refers to it.

    state = apply(harness, trained_plan(), seed, vocabulary, held_out=other)
    rewrite_trajectory(state, messages, system=lambda h: render_system(h, room))
    canonicalise_call(state, name, arguments)

Always holds: pure, torch-free, deterministic. Families and their laws: `operators`; held-out suites: `plan.HOLDOUTS`;
conversations that bring their own tools: `conversation`; faults of tools: `faults`.
"""

from __future__ import annotations

from hat_harness.augment.engine import apply, original, replay
from hat_harness.augment.faults import AsyncFaultyBackend, FaultPlan, FaultyBackend
from hat_harness.augment.operators import AnyOperator, Family, Law, Operator
from hat_harness.augment.plan import HOLDOUTS, AugmentPlan, Holdout, draw, suite_plan, trained_plan, training_plan
from hat_harness.augment.state import HarnessState, Rewrite
from hat_harness.augment.trajectory import (
    canonicalise_call,
    restore_trajectory,
    rewrite_trajectory,
    translation,
)
from hat_harness.augment.translation import Translation
from hat_harness.augment.walk import translate
from hat_harness.augment.words import Words, WordsLike

__all__ = [
    "HOLDOUTS",
    "AnyOperator",
    "AsyncFaultyBackend",
    "AugmentPlan",
    "Family",
    "FaultPlan",
    "FaultyBackend",
    "HarnessState",
    "Holdout",
    "Law",
    "Operator",
    "Rewrite",
    "Translation",
    "Words",
    "WordsLike",
    "apply",
    "canonicalise_call",
    "draw",
    "original",
    "replay",
    "restore_trajectory",
    "rewrite_trajectory",
    "suite_plan",
    "trained_plan",
    "training_plan",
    "translate",
    "translation",
]
