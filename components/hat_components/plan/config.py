"""A training plan (`hatstack.trainplan/1`): which model, on which GPUs, by which method, with which batches.

Always holds: an unknown key is an error with its place. Not here: what it comes to (memory).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import InputError

SHIPPED = Path(__file__).parent


class Part(BaseModel):
    """Base of everything in a plan: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Model(Part):
    """Class and config of the model."""

    kind: Annotated[str, Field(alias="class")]
    """`model_type` of a transformers config."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Its fields, where they differ from the class's defaults."""


class Gpu(Part):
    """What one node has."""

    product: str = "NVIDIA-H20"
    memory_gib: Annotated[float, Field(gt=0)] = 96.0
    count: Annotated[int, Field(ge=1)] = 8
    """GPUs that share one copy of the training state (FSDP2 full shard)."""


class Method(Part):
    """What is trained."""

    kind: Literal["lora", "full"] = "lora"
    rank: Annotated[int, Field(ge=1)] = 32
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Last part of the names of the linear layers that get adapters."""


class Batch(Part):
    """What one GPU holds of a step at a time."""

    sequence: Annotated[int, Field(ge=1)] = 8192
    """Tokens of a packed row."""
    rows: Annotated[int, Field(ge=1)] = 1
    logits_chunk: Annotated[int, Field(ge=1)] = 1024
    """Positions whose logits exist at a time (TRL's chunked loss)."""
    checkpointing: bool = True
    """Keep only the input of each layer and compute the rest again in the backward pass."""


class Rollouts(Part):
    """Sessions that one GPU samples side by side in the rl stage."""

    sessions: Annotated[int, Field(ge=1)] = 32
    tokens: Annotated[int, Field(ge=1)] = 8192


class TrainPlan(Part):
    """The whole plan."""

    format: Literal["hatstack.trainplan/1"] = "hatstack.trainplan/1"
    name: str
    model: Model
    gpu: Gpu = Gpu()
    method: Method = Method()
    batch: Batch = Batch()
    rollouts: Rollouts = Rollouts()


def load_plan(name: str) -> TrainPlan:
    """A shipped plan by name, or a file; InputError names file and key."""
    path = Path(name)
    if not path.suffix:
        path = SHIPPED / f"{name}.yaml"
    known = ", ".join(sorted(one.stem for one in SHIPPED.glob("*.yaml")))
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = (
            "there is none"
            if isinstance(error, FileNotFoundError)
            else f"it cannot be read: {' '.join(str(error).split())}"
        )
        raise InputError(f"training plan {name!r}: {reason}", place=str(path), cure=f"a file, or: {known}") from None
    try:
        return TrainPlan.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"training plan: {key}: {first['msg']}", place=str(path), cure="correct the key") from None
