"""Config of the sft step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hat_components.large.settings import Large
from hat_components.model.settings import FitConfig
from hat_components.step import StepConfig
from hat_scenarios.general import Kind


class Config(StepConfig):
    """What of the trajectories is trained on, how, and what is kept from forgetting."""

    arm: str = "hsa"
    """Arm of the trajectories: `naive` (the original harness), `hsa` (sampled states), or another in the dataset."""
    threads: int = Field(default=2, ge=1)
    """CPU threads; the weights depend on it."""
    fit: FitConfig = FitConfig(tokens=2_000_000, trainer="trl", checkpoint_every=100)
    """Budget, learning rate, optimiser, checkpoints."""
    freeze_embedding: bool = True
    """Leave the embedding, and with it a tied head, as the base has it. Trained, it unlearns every word that is
    never a target: T2x 39 instead of 61, instruction following 5 instead of 25 (measured on a prototype)."""
    replay_share: float = Field(default=0.2, ge=0, lt=1)
    """Share of the tokens that is general data."""
    replay: dict[Kind, float] = Field(default={"instruction": 0.5, "session": 0.4, "lookup": 0.1})
    """Shares within the replay."""
    scenario: str = "live_commerce"
    """Scenario whose held-out words the replay avoids; "" for none."""
    scenario_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario."""
    max_length: int = Field(default=1536, ge=64)
    """Longest row in tokens; what is longer is cut off and counted in a warning."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the saved weights."""
    large: Large | None = None
    """How to train a given Hugging Face model; none: the small one is trained."""
