"""Given models: loaded, made ready for training, and written as they are served.

Always holds: weights that are trained are float32; a written folder holds the merged weights, the tokenizer with the
template that was trained with, and the draft head (`mtp.*`) of the model it came from, bit for bit. Not here: loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from hat_components.large.settings import Large
from hat_components.model.course import check_finite
from hat_components.model.folder import Loaded, load_folder, save_folder
from hat_components.step import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_large(folder: Path, large: Large) -> Loaded:
    """A model folder in the dtype that training wants it in. Raises InputError."""
    return load_folder(folder, "float32" if large.method == "full" else large.dtype)


def targets_of(model: PreTrainedModel, large: Large) -> list[str]:
    """Those of `targets` that the model has; InputError where it has none."""
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    found = [target for target in large.targets if target in names]
    if not found:
        raise InputError(
            f"the model has no linear layer called {', '.join(large.targets)}",
            place="large.targets",
            cure=f"it has {', '.join(sorted(names))}",
        )
    return found


def trainable(model: PreTrainedModel, large: Large, seed: int, freeze_embedding: bool) -> Any:
    """The model with fresh adapters, or itself with every weight to be trained."""
    if large.method == "full":
        if freeze_embedding:
            model.get_input_embeddings().weight.requires_grad_(False)
        return model
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=large.rank, lora_alpha=large.alpha, target_modules=targets_of(model, large), task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wrapped = get_peft_model(model, config)
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return wrapped


def write(
    folder: Path,
    start: Path,
    large: Large,
    state: Mapping[str, torch.Tensor],
    training: Mapping[str, Any],
    dtype: Literal["float32", "bfloat16"],
) -> int:
    """Write `start` with the trained `state` (names as `trainable`'s model has them); returns the parameters."""
    loaded = load_folder(start, dtype)
    model: Any = loaded.model
    if large.method == "lora":
        model = trainable(model, large, 0, False)
    wanted = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    trained = {name: tensor for name, tensor in state.items() if name in wanted}
    if not trained:
        raise RuntimeError(f"nothing of the trained state is in the model: {sorted(state)[:3]}")
    model.load_state_dict(trained, strict=False)
    if large.method == "lora":
        model = model.merge_and_unload()
    check_finite(model, "training")
    count: int = sum(parameter.numel() for parameter in model.parameters())
    save_folder(folder, model, loaded.codec, {**training, "parameters": count}, dtype, head_of=start)
    return count
