"""Toy step `draw`: its config."""

from __future__ import annotations

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """Draws numbers."""

    count: int = Field(default=3, ge=1)
    """How many."""
    scale: float = 1.0
    numbers: tuple[int, ...] = (1, 2)
    """Added to what is drawn; integers must survive every runner."""
