"""A model folder: weights, config, tokenizer and what training says of itself, under one digest.

Always holds: model and tokenizer of a loaded folder agree on the vocabulary; `training.json` holds only what depends on
config and inputs (no times), so that the same training gives the same digest. Not here: checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from hat_components.data import digest_path
from hat_components.model.artifact import new_folder
from hat_components.model.codec import Codec
from hat_components.model.qwen import load_model, save_model
from hat_components.model.template import load_codec
from hat_components.model.tokenizer import EOS, save_tokenizer
from hat_components.mtp.tensors import put_head, read_head
from hat_components.step import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TRAINING = "training.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its codec."""

    model: PreTrainedModel
    codec: Codec
    digest: str
    folder: Path | None = None
    """Where it was loaded from."""


def load_folder(folder: Path, dtype: Literal["float32", "bfloat16"] = "float32") -> Loaded:
    """Load a model with its codec. Raises InputError when anything is missing, broken, or does not fit together."""
    codec = load_codec(folder)
    model = load_model(folder, dtype)
    entries, known = int(model.config.vocab_size), len(codec.tokenizer)
    if known > entries:
        raise InputError(
            f"the tokenizer has {known} entries, the model {entries}",
            place=str(folder),
            cure="use the tokenizer that the model was trained with",
        )
    if type(codec) is Codec and int(model.config.eos_token_id) != codec.eos:
        raise InputError(f"the model's end token is not {EOS}", place=str(folder), cure="use the model's own tokenizer")
    return Loaded(model, codec, digest_path(folder), folder)


def save_folder(
    folder: Path,
    model: PreTrainedModel,
    codec: Codec,
    training: Mapping[str, Any],
    dtype: Literal["float32", "bfloat16"] = "float32",
    head_of: Path | None = None,
) -> str:
    """Write a whole model folder under a new name; returns its digest. The draft head (`mtp.*`) of the folder `head_of`,
    if it has one, goes along: transformers drops it."""
    head = read_head(head_of) if head_of is not None else {}
    model.config.use_cache = True  # TRL's trainers switch it off for themselves; this folder is to be served
    with new_folder(folder) as draft:
        save_model(model, draft, dtype)
        if head:
            put_head(draft, head)
        save_tokenizer(codec.tokenizer, draft)
        text = json.dumps(training, indent=2, sort_keys=True, ensure_ascii=False)
        (draft / TRAINING).write_text(text + "\n", encoding="utf-8")
    return digest_path(folder)


def read_training(folder: Path) -> dict[str, Any]:
    """What the folder's training says of itself; empty where it says nothing."""
    try:
        found = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run torch's CPU work on `count` threads: sums, and so weights, depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
