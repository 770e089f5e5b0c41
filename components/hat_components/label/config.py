"""Config of the label step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat_components.label.raters import Rater
from hat_components.step import StepConfig


class Config(StepConfig):
    """What is labelled, and by whom."""

    kind: Literal["pair", "single"] = "pair"
    """`pair`: two evaluations of the same items, blind. `single`: one evaluation by a judge's rubric."""
    name: str = Field(default="blind-pairs", pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    """Name of the project."""
    suite: str = "t1"
    """Suite whose sessions are shown."""
    count: int = Field(default=100, ge=1)
    """Turns that are drawn."""
    judge: str = "live-commerce"
    """Built-in judge whose rubric single ratings go by; an input `judge` (a folder) takes its place."""
    ratings_per_item: int = Field(default=3, ge=1, le=20)
    """Raters that each item is offered to."""
    raters: tuple[Rater, ...] = ()
    """Simulated raters; () leaves the ratings to people, or to input `labels`."""
