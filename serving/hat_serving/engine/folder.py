"""Reads a Hugging Face model folder: config.json, safetensors, generation_config.json.

Always holds: what `read_folder` returns has every tensor that the network needs, of the shapes that the config says,
finite, in one dtype; pickles, code and remote addresses are never touched. Not here: tokenizer and template (text).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hat_serving.engine.errors import ModelError
from hat_serving.engine.options import Precision

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3-style decoder. `heads` query heads share `kv_heads` key and value heads."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    positions: int
    epsilon: float
    theta: float
    tied: bool


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model as read from disk; `weights` by the names of the checkpoint, `mtp.*` included where there are any."""

    path: Path
    shape: Shape
    weights: Mapping[str, torch.Tensor]
    dtype: torch.dtype
    eos: tuple[int, ...]
    """Tokens that end a generation."""
    model_type: str
    architectures: tuple[str, ...]
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Sampling defaults of generation_config.json that differ from SGLang's own."""

    @property
    def has_mtp(self) -> bool:
        """Whether the checkpoint carries a NextN head."""
        return "mtp.fc.weight" in self.weights


def read_folder(path: Path, precision: Precision = "auto") -> ModelFolder:
    """Read and check a model folder. ModelError says what is wrong with which file."""
    config = _json(path / "config.json", required=True)
    generation = _json(path / "generation_config.json", required=False)
    shape = _shape(config, path)
    named = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    dtype = _DTYPES.get(named if precision == "auto" else precision, torch.float32)
    weights = _weights(path, dtype)
    _check(shape, weights, path)
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    eos = tuple(ends) if isinstance(ends, list) else () if ends is None else (int(ends),)
    wanted = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    defaults = {name: generation[name] for name in wanted if isinstance(generation.get(name), int | float)}
    architectures = tuple(config.get("architectures") or ("Qwen3ForCausalLM",))
    return ModelFolder(path, shape, weights, dtype, eos, str(config["model_type"]), architectures, defaults)


def _json(path: Path, *, required: bool) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise ModelError(
                f"there is no {path.name}", place=str(path.parent), cure="give a Hugging Face model folder"
            )
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"it is no JSON: {error}", place=str(path)) from None
    if not isinstance(found, dict):
        raise ModelError("it is no JSON object", place=str(path))
    return found


def _shape(config: Mapping[str, Any], path: Path) -> Shape:
    place = str(path / "config.json")
    if config.get("auto_map"):
        raise ModelError("the config asks for code of its own", place=place, cure="use a built-in architecture")
    if config.get("model_type") != "qwen3":
        raise ModelError(
            f"model_type {config.get('model_type')!r} is not served here", place=place, cure="give a dense Qwen3 model"
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", "default")
    for name, value in (("rope_type", kind != "default"), ("attention_bias", config.get("attention_bias"))):
        if value:
            raise ModelError(f"{name} of this model is not served here", place=place)
    if config.get("use_sliding_window") or config.get("quantization_config"):
        raise ModelError("sliding windows and quantised weights are not served here", place=place)
    try:
        heads = int(config["num_attention_heads"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            feed_forward=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            positions=int(config["max_position_embeddings"]),
            epsilon=float(config.get("rms_norm_eps", 1e-6)),
            theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the sizes are incomplete: {error}", place=place) from None


def _weights(path: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        pickles = sorted(path.glob("*.bin"))
        cure = "convert it to safetensors; pickles are refused" if pickles else "give a folder with weights"
        raise ModelError("there are no safetensors", place=str(path), cure=cure)
    found: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            with safe_open(str(file), framework="pt") as reader:
                for name in reader.keys():  # noqa: SIM118  # the reader is no dict
                    tensor = reader.get_tensor(name)
                    if not tensor.is_floating_point():
                        raise ModelError(f"{name} is of dtype {tensor.dtype}", place=str(file))
                    found[name.removeprefix("model.") if name.startswith("model.mtp.") else name] = tensor.to(dtype)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"it cannot be read: {error}", place=str(file), cure="copy it again") from None
    return found


def wanted_shapes(shape: Shape, prefix: str, hidden: int | None = None) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one decoder layer's tensors under `prefix` (`model.layers.0.`, `mtp.layers.0.`)."""
    width = hidden or shape.hidden
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        f"{prefix}input_layernorm.weight": (width,),
        f"{prefix}self_attn.q_proj.weight": (queries, width),
        f"{prefix}self_attn.k_proj.weight": (keys, width),
        f"{prefix}self_attn.v_proj.weight": (keys, width),
        f"{prefix}self_attn.o_proj.weight": (width, queries),
        f"{prefix}self_attn.q_norm.weight": (shape.head_dim,),
        f"{prefix}self_attn.k_norm.weight": (shape.head_dim,),
        f"{prefix}post_attention_layernorm.weight": (width,),
        f"{prefix}mlp.gate_proj.weight": (shape.feed_forward, width),
        f"{prefix}mlp.up_proj.weight": (shape.feed_forward, width),
        f"{prefix}mlp.down_proj.weight": (width, shape.feed_forward),
    }


def mtp_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a NextN head, as SGLang and Qwen's checkpoints name them."""
    return {
        "mtp.fc.weight": (shape.hidden, 2 * shape.hidden),
        "mtp.pre_fc_norm_embedding.weight": (shape.hidden,),
        "mtp.pre_fc_norm_hidden.weight": (shape.hidden,),
        "mtp.norm.weight": (shape.hidden,),
        **wanted_shapes(shape, "mtp.layers.0."),
    }


def _check(shape: Shape, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    wanted: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (shape.vocabulary, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    for layer in range(shape.layers):
        wanted |= wanted_shapes(shape, f"model.layers.{layer}.")
    if not shape.tied:
        wanted["lm_head.weight"] = (shape.vocabulary, shape.hidden)
    if any(name.startswith("mtp.") for name in weights):
        wanted |= mtp_shapes(shape)
    for name, size in wanted.items():
        if name not in weights:
            raise ModelError(f"the tensor {name} is missing", place=str(path))
        if tuple(weights[name].shape) != size:
            raise ModelError(f"{name} is {tuple(weights[name].shape)}, the config says {size}", place=str(path))
        if not torch.isfinite(weights[name]).all():
            raise ModelError(f"{name} holds values that are no numbers", place=str(path))
    if "mtp.layers.1.input_layernorm.weight" in weights:
        raise ModelError("an MTP head of more than one layer is not served here", place=str(path))
