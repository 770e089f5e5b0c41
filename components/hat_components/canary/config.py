"""Config of the canary step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """Which rollout is started, where, and how long the step waits for its end."""

    registry: str = ""
    """Base URL of the console that knows the rollouts; "" starts nothing and writes what it would have started."""
    token_variable: str = "HATSTACK_TOKEN"  # noqa: S105  # the name of a variable, not a token
    """Environment variable with the token of an account that may move pointers."""
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    """Namespace of the rollout."""
    name: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)
    """Name of the rollout; "" takes the release's name and the first figures of its digest."""
    spec: dict[str, Any] = Field(default_factory=dict)
    """A CanaryRollout's spec without `release`. In its texts `<digest>`, `<short>`, `<model>` and `<harness>` stand for the
    release's own; without any, nothing is started."""
    approval_s: float = Field(default=0.0, ge=0)
    """Seconds to wait for the proposal's approval before anything starts; 0 does not wait for it."""
    timeout_s: float = Field(default=21600.0, gt=0)
    """Seconds until the rollout must have ended."""
    on_timeout: Literal["abort", "leave"] = "abort"
    """What is done with a rollout that has not ended by then: it is taken back, or left to its controller."""
    alarm: bool = True
    """End with an error when the release was not promoted, so that the run goes red; else only the metric says it."""
    interval_s: float = Field(default=5.0, gt=0)
    """Seconds between two looks."""
    patience_s: float = Field(default=300.0, ge=0)
    """Seconds for which a console that does not answer is asked again; the rollout goes on without it."""
    request_s: float = Field(default=20.0, gt=0)
    """Limit of one request."""
