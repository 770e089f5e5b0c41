"""Qwen3 in small: built from a config, trained with a fast attention, kept as safetensors only.

Always holds: a folder that `load_model` accepts holds finite weights of the shapes its config says, with nothing
missing; pickled weights and code of the folder are refused. Shapes: B rows, T tokens, H heads, D head dimension.
Not here: the tokenizer, training (train), generation (generate).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from hat_components.model.artifact import disk_errors
from hat_components.model.settings import ModelConfig
from hat_components.step import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

transformers_logging.disable_progress_bar()  # standard error is for people; a bar of 30 tensors tells them nothing

CAUSAL = "hat_causal"
"""Name of the training attention in transformers' AttentionInterface."""

BLOCK = 192
"""Queries at a time in training attention."""

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_DTYPES = ("F32", "BF16", "F16")


def build_model(config: ModelConfig, tokenizer: Any, seed: int) -> Qwen3ForCausalLM:
    """Fresh fp32 weights with tied embeddings; the same seed gives the same weights."""
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.hidden // config.heads,
        intermediate_size=config.feed_forward,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        initializer_range=config.initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        attention_dropout=0.0,
        use_cache=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(shape)


_masks: dict[tuple[int, torch.dtype], torch.Tensor] = {}


def _mask(length: int, dtype: torch.dtype) -> torch.Tensor:
    """Upper triangle of -inf, [T, T]; kept in steps of 128 so that few are made."""
    size = -(-length // 128) * 128
    if (size, dtype) not in _masks:
        _masks[size, dtype] = torch.full((size, size), float("-inf"), dtype=dtype).triu(1)
    return _masks[size, dtype][:length, :length]


def causal_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention for right-padded training batches: a padded token is never looked at by a real one.

    It works on blocks of queries against the keys before their end, so that half of the square is never computed. At
    these sizes its backward pass is some times as fast on a CPU as the flash kernel's. `query` is [B, H, T, D], `key`
    and `value` have as many heads or fewer. Returns [B, T, H, D].
    """
    if attention_mask is not None or dropout:
        raise ValueError("this attention is for right-padded batches without mask or dropout")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # Under autocast the norms of query and key leave float32; casting here does it once, not for every block.
    query, turned = (query * scale).to(value.dtype), key.transpose(-1, -2).to(value.dtype)
    length = query.shape[2]
    mixed = []
    for start in range(0, length, BLOCK):
        end = min(length, start + BLOCK)
        scores = torch.matmul(query[:, :, start:end], turned[..., :end])  # [B, H, <=BLOCK, end]
        scores = scores + _mask(length, scores.dtype)[start:end, :end]  # bfloat16 where autocast says so
        weights = torch.softmax(scores, dim=-1, dtype=scores.dtype)
        mixed.append(torch.matmul(weights, value[:, :, :end]))
    return torch.cat(mixed, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(CAUSAL, causal_attention)


def save_model(model: PreTrainedModel, folder: Path, dtype: Literal["float32", "bfloat16"] = "float32") -> None:
    """Write config.json and model.safetensors into `folder`; the model itself keeps its dtype."""
    target = getattr(torch, dtype)
    # Parameters, not the state dict: a tied head is the embedding and is stored once.
    state = {name: parameter.detach().to(target).contiguous() for name, parameter in model.named_parameters()}
    with disk_errors(folder):
        model.save_pretrained(str(folder), state_dict=state, safe_serialization=True)
        path = folder / "config.json"  # transformers writes the dtype of the model, not of the state
        path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": dtype}, indent=2) + "\n")


def load_model(folder: Path, dtype: Literal["float32", "bfloat16"] = "float32") -> PreTrainedModel:
    """Load any causal language model of a local folder in `dtype`. Raises InputError for everything that is wrong."""
    from transformers import AutoModelForCausalLM

    check_folder(folder)
    told = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # its report of keys is judged here
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(f"the model cannot be loaded: {str(error)[:300]}", place=str(folder)) from error
    finally:
        transformers_logging.set_verbosity(told)
    faults = {kind: sorted(map(str, info[kind])) for kind in ("missing_keys", "mismatched_keys") if info.get(kind)}
    if extra := sorted(str(key) for key in info.get("unexpected_keys") or () if not str(key).startswith("mtp.")):
        faults["extra_keys"] = extra  # a draft head is no part of the class, and is carried along elsewhere
    if faults:
        raise InputError(f"the weights do not fit the config: {json.dumps(faults)[:300]}", place=str(folder))
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise InputError(f"the weight {name} is not finite", place=str(folder), cure="take an earlier checkpoint")
    # Classes name layers of the parts that a text model leaves out, and FSDP2 looks for every one that is named.
    present = {type(module).__name__ for module in model.modules()}
    model._no_split_modules = {name for name in model._no_split_modules or () if name in present}
    return model


def check_folder(folder: Path) -> None:
    """Refuse pickles, code, and safetensors that are cut off or of a dtype that is no float. Reads headers only."""
    if not (folder / "config.json").is_file():
        raise InputError("there is no config.json", place=str(folder), cure="give a model folder")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"config.json is not JSON: {error}", place=str(folder)) from error
    if "auto_map" in config:
        raise InputError("the config asks for code of its own", place=str(folder), cure="use a built-in architecture")
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickles:
        raise InputError(f"pickled weights are refused: {pickles[0]}", place=str(folder), cure="give safetensors")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError("there are no safetensors", place=str(folder))
    for path in files:
        for name, dtype in tensor_dtypes(path):
            if dtype not in _DTYPES:
                raise InputError(f"{name} has dtype {dtype}", place=str(path), cure="give " + ", ".join(_DTYPES))


def tensor_dtypes(path: Path) -> Iterator[tuple[str, str]]:
    """(name, dtype) of every tensor; raises InputError where header and file size disagree."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(size - 8, 100_000_000):
            raise InputError("the safetensors header is broken", place=str(path))
        try:
            header: Mapping[str, Any] = json.loads(stream.read(length))
        except ValueError as error:
            raise InputError("the safetensors header is not JSON", place=str(path)) from error
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    try:
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
        found = [(name, str(entry["dtype"])) for name, entry in tensors.items()]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise InputError("the safetensors header is broken", place=str(path)) from error
    if size != 8 + length + end:
        stated = 8 + length + end
        raise InputError(f"it holds {size} bytes, its header says {stated}", place=str(path), cure="copy it again")
    yield from found
