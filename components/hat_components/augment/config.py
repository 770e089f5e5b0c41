"""Config of the augment step."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hat_components.step import StepConfig
from hat_harness.augment import AugmentPlan, Family, training_plan


class Config(StepConfig):
    """How conversations are made for each arm."""

    scenario: str = "live_commerce"
    """Name of the scenario package that the items belong to."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario."""
    plan: AugmentPlan = Field(default_factory=training_plan)
    """Distribution over rewrites for the arm `hsa`, a share of originals included."""
    held_out: tuple[Family, ...] = ()
    """Families that training must not see; they leave the plan whole."""
    batch: int = Field(default=64, ge=1)
    """Sessions that are played side by side. It never changes a result."""
    least_kept: float = Field(default=0.95, ge=0, le=1)
    """Share of sessions that must score 1.0; fewer mean that harness and scenario do not fit together."""
    budget: int | None = Field(default=None, ge=1)
    """Size of each arm in budget units (about tokens); None: as much as the smaller arm has."""
