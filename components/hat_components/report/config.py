"""Config of the report step."""

from __future__ import annotations

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """What the page is called and how much of the material it shows."""

    title: str = "Run report"
    """Heading of the page."""
    run: str = ""
    """Id of the run, shown under the heading; "" for none."""
    baseline: str = ""
    """Arm that the others are compared with; "" for the first of base, naive, hsa, opd, rl, then by name."""
    conversations: int = Field(default=10, ge=0, le=200)
    """Conversations that are shown whole."""
    draws: int = Field(default=10_000, ge=100, le=100_000)
    """Draws of the paired bootstrap behind the contrasts."""
