"""How a large model is trained: one section of the steps' configs. Not here: budgets and rates (the steps' own fields)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat_components.model.settings import Settings


class Large(Settings):
    """A Hugging Face model of any causal class with its own tokenizer, trained in place of the small one.

    Several processes (torchrun, Kubeflow Trainer) shard weights, gradients and optimiser by FSDP2. The optimiser is
    AdamW; a step's own `optimizer` and `trainer` fields are not used.
    """

    method: Literal["lora", "full"] = "lora"
    """Adapters (arXiv 2106.09685), which are merged into the saved weights, or every weight."""
    rank: int = Field(default=32, ge=1)
    """Of the adapters."""
    alpha: float = Field(default=64.0, gt=0)
    """The adapters' product is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "out_proj")
    """Last part of the names of the linear layers that get adapters; those that a class has not are passed over."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of frozen weights and of the products; what is trained is kept in float32."""
    checkpointing: bool = True
    """Keep only the input of each layer, and compute the rest again in the backward pass."""
    packing: bool = True
    """Put several rows into one sequence (sft), with positions and attention of each row apart."""
    rows: int = Field(default=1, ge=1)
    """Sequences that one process holds at a time (sft); the other steps have `rows_at_once`."""
    sampled_at_once: int = Field(default=16, ge=1)
    """Sessions that one process samples side by side."""
    shard: bool = True
    """Shard over the processes; without it each holds everything."""
    router_loss: float = Field(default=0.001, ge=0)
    """Weight of the loss that spreads tokens over the experts (sft, classes with experts)."""
