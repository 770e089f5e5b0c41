"""Toy step `add`: its config."""

from __future__ import annotations

from typing import Literal

from hat_components.step import StepConfig


class Config(StepConfig):
    """Adds numbers, or fails in the way that is asked for."""

    arm: str = ""
    fail: Literal["", "input", "bug", "memory", "once", "kill", "absent", "disk", "away"] = ""
    marker: str = ""
    """File that `once` leaves behind, so that the second try succeeds; every try appends a line. `absent` fails until
    somebody else has made it."""
