"""Toy step `hold`: its config."""

from __future__ import annotations

from hat_components.step import StepConfig


class Config(StepConfig):
    """Goes on once a file stands; until then it writes a line, a point and a count of tokens again and again."""

    release: str = ""
    """File that is waited for."""
    tokens: int = 10
    """Tokens that each round counts."""
