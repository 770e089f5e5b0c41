"""Toy step `wait`: its config."""

from __future__ import annotations

from hat_components.step import StepConfig


class Config(StepConfig):
    """Waits for ever, once it has started a child that does so too."""

    pids: str = ""
    """File that gets the process ids of the step and its child."""
