"""Config of the simulate step."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """How many items of which scenario are drawn, and what the rooms are like."""

    scenario: str = "live_commerce"
    """Name of the scenario package."""
    train: int = Field(default=600, ge=1)
    """Items of `items_train`, from which training conversations are made."""
    dev: int = Field(default=60, ge=1)
    """Items of `items_dev`, by which arms and settings are chosen."""
    test: int = Field(default=120, ge=1)
    """Items of `items_test`, for tables; its suites use sealed seeds."""
    calibration: int = Field(default=0, ge=0)
    """Items of `items_calibration`, on which a judge is calibrated; 0: none are drawn."""
    evolve: int = Field(default=0, ge=0)
    """Items of `items_evolve`, by which harness edits are developed; 0: none are drawn."""
    fresh: bool = False
    """Draw by the minute in which the step runs instead of the seed, for items that no earlier run had; the items' manifest
    says which seed it was."""
    turns: int = Field(default=3, ge=1, le=50)
    """Turns of an item."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario (intent mix, difficulty) for all sets but train."""
    train_settings: dict[str, Any] = Field(default={"mix": "balanced"})
    """Settings of the scenario for `items_train`."""
