"""Config of the base step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hat_components.model.settings import FitConfig, ModelConfig, TokenizerConfig
from hat_components.step import StepConfig
from hat_scenarios.general import Kind

COPYING = FitConfig(
    tokens=700_000, batch_tokens=1024, learning_rate=4e-3, schedule="constant", stop_below=1.0, checkpoint_every=200
)
LOOKUP = FitConfig(tokens=250_000, learning_rate=4e-3, schedule="constant", checkpoint_every=200)
MIXED = FitConfig(tokens=3_000_000, learning_rate=4e-3, checkpoint_every=200)


class Config(StepConfig):
    """Three courses: copying until it works, looking names up, then a mixture with agent sessions."""

    shipped: str = ""
    """Name of a checkpoint that ships (hat_components.base.shipped): hand it out instead of training; "" to train."""
    shipped_digest: str = ""
    """Digest that the shipped checkpoint must have."""
    folder: str = ""
    """Folder of a Hugging Face model on the machine to hand out instead of training; "" to train."""
    folder_digest: str = ""
    """Digest that the artifact of that folder must have; "" takes any."""
    threads: int = Field(default=2, ge=1)
    """CPU threads; the weights depend on it."""
    scenario: str = "live_commerce"
    """Scenario whose words and texts the tokenizer is trained on; "" for none."""
    scenario_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario."""
    corpus_items: int = Field(default=600, ge=0)
    """Items of the scenario, and conversations of each general kind, in the tokenizer's corpus."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """Ignored where an `init` model is given."""
    model: ModelConfig = ModelConfig()
    """Ignored where an `init` model is given."""
    copying: FitConfig = COPYING
    """Copying alone, in small batches: what everything else is built on. Left out where an `init` model is given."""
    lookup: FitConfig = LOOKUP
    """Names by description, four fifths of the tokens; the rest is copying. Left out where an `init` model is given."""
    mixed: FitConfig = MIXED
    """The mixture of `shares`."""
    shares: dict[Kind, float] = Field(default={"session": 0.55, "lookup": 0.08, "copy": 0.12, "instruction": 0.25})
    """Shares of the mixture's tokens by kind of general data."""
    trajectory_share: float = Field(default=0.12, ge=0, lt=1)
    """Share of the mixture's tokens that comes from the input `trajectories`, where it is given."""
    max_length: int = Field(default=1536, ge=64)
    """Longest row in tokens; what is longer is cut off and counted in a warning."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the saved weights."""
