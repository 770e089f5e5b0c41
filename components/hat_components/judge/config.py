"""Config of the judge step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """Which judge looks at what."""

    mode: Literal["score", "calibrate"] = "score"
    """`score`: judge the sessions, correct by input `calibration` where it is given. `calibrate`: hold the judge against
    input `labels`, or against the simulation's own truth."""
    judge: str = "live-commerce"
    """Name of a built-in judge; an input `judge` (a folder) takes its place."""
    suite: str = "t1"
    """Suite whose sessions are judged."""
    subjects: int | None = Field(default=None, ge=1)
    """Turns that are judged, the first in order; None: all."""
    endpoint: str = ""
    """Base URL, up to and including `/v1`, that every endpoint member is asked at; "" for the judge's own."""
    endpoint_model: str = ""
    """Model name at that endpoint; "" for the judge's own. Another model is another judge digest."""
    cost: float | None = Field(default=None, gt=0)
    """Most that the run may cost, in the currency of the members' prices; then the rest is missing. None: no limit."""
    requests: int | None = Field(default=None, ge=1)
    """Most requests that the run may send. None: no limit."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Level of all intervals."""
    draws: int = Field(default=2000, ge=100)
    """Draws of the bootstrap intervals."""
    drift_alpha: float = Field(default=0.01, gt=0, lt=0.5)
    """Chance of a false alarm when a calibration is compared with the last one of input `history`."""
