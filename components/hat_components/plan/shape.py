"""Parameters of a model by what training does with them, counted on a model without memory.

The model is built on torch's `meta` device from its config class, so counts are exact for any architecture that
transformers has. Not here: bytes (memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hat_components.plan.config import Method, Model
from hat_components.step import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Shape:
    """Counts are parameters; sizes are those of the config."""

    total: int
    embedding: int
    """Of the input embedding and the head."""
    largest_layer: int
    """Of the layer that FSDP gathers at a time."""
    adapters: int
    """Of LoRA; 0 when everything is trained."""
    layers: int
    hidden: int
    vocab: int
    layer_bytes_per_token: float
    """What one layer's forward pass keeps for its backward pass, 16-bit, for each token."""
    kv_bytes_per_token: int
    """Key and value, 16-bit, over all layers that keep them."""
    state_bytes_per_session: int
    """State of linear attention, 32-bit, and the last inputs of its convolution, 16-bit, over its layers."""


def measure(model: Model, method: Method) -> Shape:
    """The shape of a model under a method; InputError for an unknown class, a bad field or a target that no layer has."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    if model.kind not in CONFIG_MAPPING:
        raise InputError(
            f"transformers has no model class {model.kind!r}", place="model.class", cure="see its model_type"
        )
    try:
        config = CONFIG_MAPPING[model.kind](**model.config)
        with torch.device("meta"):
            built = AutoModelForCausalLM.from_config(config)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"no model can be made of the config: {error}"[:300], place="model.config") from None
    layers = list(built.model.layers)
    embedding = sum(p.numel() for p in {id(p): p for p in _ends(built)}.values())
    return Shape(
        total=sum(p.numel() for p in built.parameters()),
        embedding=embedding,
        largest_layer=max(sum(p.numel() for p in layer.parameters()) for layer in layers),
        adapters=_adapters(built, method) if method.kind == "lora" else 0,
        layers=len(layers),
        hidden=config.hidden_size,
        vocab=config.vocab_size,
        layer_bytes_per_token=_kept(config),
        kv_bytes_per_token=_kv(config),
        state_bytes_per_session=_state(config),
    )


def _ends(built: Any) -> list[nn.Parameter]:
    return [*built.get_input_embeddings().parameters(), *built.get_output_embeddings().parameters()]


def _adapters(built: nn.Module, method: Method) -> int:
    """r (in + out) for each adapted linear layer (arXiv 2106.09685)."""
    from torch import nn

    count, seen = 0, set()
    for name, module in built.named_modules():
        last = name.rsplit(".", 1)[-1]
        if last in method.targets and isinstance(module, nn.Linear):
            seen.add(last)
            count += method.rank * (module.in_features + module.out_features)
    missing = sorted(set(method.targets) - seen)
    if missing:
        raise InputError(
            f"no linear layer is called {', '.join(missing)}", place="method.targets", cure="see the model"
        )
    return count


def _kinds(config: Any) -> list[str]:
    return list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)


def _kv(config: Any) -> int:
    full = sum(kind != "linear_attention" for kind in _kinds(config))
    return int(full * 2 * config.num_key_value_heads * _head(config) * 2)


def _state(config: Any) -> int:
    linear = sum(kind == "linear_attention" for kind in _kinds(config))
    if not linear:
        return 0
    heads, keys, values = config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim
    channels = 2 * config.linear_num_key_heads * keys + heads * values
    return int(linear * (heads * keys * values * 4 + channels * config.linear_conv_kernel_dim * 2))


def _head(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _kept(config: Any) -> float:
    """Elements that a layer saves for each token, times two bytes: inputs of norms and projections, attention's own
    inputs and output (its scores are computed again by the kernel), and of every expert that a token visits."""
    attention = 3 * config.hidden_size + _head(config) * (
        2 * config.num_attention_heads + 2 * config.num_key_value_heads
    )
    if "linear_attention" in _kinds(config):
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        attention = max(attention, 3 * config.hidden_size + 2 * (2 * keys + 3 * values))
    visits = getattr(config, "num_experts_per_tok", 0) or 0
    if getattr(config, "num_experts", 0):
        shared = getattr(config, "shared_expert_intermediate_size", 0) or 0
        forward = visits * (2 * config.hidden_size + 4 * config.moe_intermediate_size) + 4 * shared
    else:
        forward = 4 * config.intermediate_size
    return float(2 * (attention + 2 * config.hidden_size + forward))
