"""Config of the collect step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hat_components.step import StepConfig
from hat_harness.augment import AugmentPlan, training_plan


class Config(StepConfig):
    """Which teacher plays what, and what of it is kept."""

    endpoint: str = Field(min_length=1)
    """Base URL of an OpenAI-compatible server, up to and including `/v1`."""
    teacher: str = Field(min_length=1)
    """Name of the model at the endpoint; it stands in every trajectory as its source."""
    licence: str = Field(min_length=1)
    """What allows training on this teacher's outputs (a licence, a contract); it stands in the dataset's manifest."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the endpoint's key; the key itself is never in a config."""
    parallel: int = Field(default=8, ge=1, le=256)
    """Requests in flight."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Limit of one request."""
    temperature: float = Field(default=0.7, ge=0, le=2)
    """Of the teacher; at 0 more than one sample says nothing new."""
    scenario: str = "live_commerce"
    """Scenario that the items belong to."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario."""
    states: Literal["augmented", "original"] = "augmented"
    """Harness state of an item: drawn from `plan`, or always the original."""
    plan: AugmentPlan = Field(default_factory=training_plan)
    """Distribution over rewrites; not used with `original` states."""
    arm: str = Field(default="teacher", pattern=r"^[a-z][a-z0-9_-]*$")
    """Arm of the trajectories, by which training picks them."""
    samples: int = Field(default=4, ge=1, le=64)
    """Sessions of each item, all under its one state, each with a seed of its own."""
    keep: int = Field(default=1, ge=1)
    """Most sessions of an item that are kept: the best, the shorter of equals, no two alike."""
    keep_at: float = Field(default=1.0, ge=0, le=1)
    """Least that every score of every turn must have."""
    batch: int = Field(default=16, ge=1)
    """Items that are played side by side; so many are lost at most when the step is killed."""
    failing: int = Field(default=16, ge=1)
    """Items in a row whose sessions all met a failing endpoint, after which the step ends; it can be started again."""
    prompt_price: float = Field(default=0.0, ge=0)
    """Price of a million prompt tokens, in whatever currency."""
    completion_price: float = Field(default=0.0, ge=0)
    """Price of a million completion tokens, in the same."""
