"""Config of the gate step."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hat_components.model.settings import Settings
from hat_components.step import StepConfig


class Bound(Settings):
    """What one score must keep to; the score's interval is held against it, not its mean alone."""

    least: float | None = None
    """The lower end of the interval must reach this."""
    drop: Annotated[float, Field(ge=0)] | None = None
    """The mean may be this much below the baseline's."""


class Config(StepConfig):
    """Bounds by score, and whether to fail."""

    bounds: dict[str, Bound] = Field(default_factory=dict)
    """`suite.score` (`t1.average`) → bound; without any, every evaluation passes."""
    alarm: bool = False
    """End with an error when a bound is broken, so that a nightly run goes red; else only the metric says it."""
