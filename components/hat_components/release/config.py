"""Config of the release step."""

from __future__ import annotations

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """What is proposed, where, and who asks."""

    registry: str = ""
    """Base URL of the registry; "" writes the proposal to a file and sends nothing."""
    token_variable: str = "HATSTACK_TOKEN"  # noqa: S105  # the name of a variable, not a token
    """Environment variable with the token of an account that may push and propose."""
    name: str = Field(default="live-commerce", pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    """Name of the release; it is the harness's name in the registry."""
    serving_profile: str = "sha256:" + "0" * 64
    """Digest of the serving profile that the release is meant for."""
    pointer: str = "canary"
    """Pointer that should move to it."""
    reason: str = "trained and evaluated by a pipeline"
    """What reviewers read."""
    run: str = ""
    """Id of the pipeline's run, for the evidence."""
    timeout_s: float = Field(default=20.0, gt=0)
    """Limit of one request."""
