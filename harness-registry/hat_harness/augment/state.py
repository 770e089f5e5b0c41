"""Harness states: a harness, the digest of the one it was made from, and a record of every rewrite between them.

Always holds: a state is a value; `original(state)` is the base harness again, and applying the recorded operators with
their seeds to the base gives the same bytes. Not here: applying (engine), rewriting conversations (trajectory).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from hat_harness.augment.faults import FaultPlan
from hat_harness.augment.operators import AnyOperator, Law
from hat_harness.spec import Harness, Part

STATE_FORMAT: Literal["hatstack.harness-state/1"] = "hatstack.harness-state/1"


class Rewrite(Part):
    """What one operator did. It follows from base, operator, seed and vocabulary; `texts` and `kept` lead back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: AnyOperator
    law: Law
    seed: int
    names: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Kind → old name → new name; kinds are `skill`, `tool`, `activation`, `parameter/<tool id>` and, for the
    properties below its parameters, `inner/<tool id>`."""
    order: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What was reordered → its ids in the old order; `parameters/<tool id>` holds names."""
    texts: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Path of a text (`skills/<id>/body` …) → old and new text; the recorded inverse of content rewrites."""
    phrases: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Hook argument → old and new phrase; a reply that follows the rules says the new one."""
    added: tuple[str, ...] = ()
    """Paths of added parts (`skills/<id>`, `tools/<id>`)."""
    kept: dict[str, Any] = Field(default_factory=dict)
    """Path → JSON of what an operator replaced whole (a schema, a layout template) or removed (a hook)."""


class HarnessState(Part):
    """A harness as augmentation left it. `base_digest` names the harness that it came from."""

    format: Literal["hatstack.harness-state/1"] = STATE_FORMAT
    harness: Harness
    base_digest: str
    seed: int
    rewrites: tuple[Rewrite, ...] = ()

    _base: Harness | None = PrivateAttr(default=None)
    _translation: Any = PrivateAttr(default=None)

    @property
    def faults(self) -> FaultPlan | None:
        """The faults that its tools should show, for `FaultyBackend`; None for none."""
        for rewrite in self.rewrites:
            if rewrite.operator.type == "transition_fault":
                return FaultPlan(
                    seed=rewrite.seed,
                    rates=dict(rewrite.operator.rates),
                    most_in_a_row=rewrite.operator.most_in_a_row,
                )
        return None

    @property
    def families(self) -> tuple[str, ...]:
        """Families that were on, in order of application."""
        return tuple(rewrite.operator.type for rewrite in self.rewrites)

    def phrases(self) -> dict[str, tuple[str, str]]:
        """Hook argument → (phrase of the base, phrase that is right now), over all rewrites."""
        found: dict[str, tuple[str, str]] = {}
        for rewrite in self.rewrites:
            for argument, (old, new) in rewrite.phrases.items():
                found[argument] = (found[argument][0] if argument in found else old, new)
        return found
