"""A model folder loaded and ready: network, draft head, tokenizer and template.

Always holds: everything that could fail about a folder has failed by the time `load` returns. Not here: serving it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hat_serving.engine.errors import ModelError
from hat_serving.engine.folder import ModelFolder, read_folder
from hat_serving.engine.mtp import DraftHead
from hat_serving.engine.network import Network
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.text import TextCodec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What one generation of weights consists of."""

    folder: ModelFolder
    network: Network
    draft: DraftHead | None
    text: TextCodec
    ends: frozenset[int]
    """Tokens that end a generation: the model's and the tokenizer's."""


def load(path: Path, options: EngineOptions) -> LoadedModel:
    """Load a folder as the options want it. ModelError."""
    folder = read_folder(path, options.dtype)
    positions = folder.shape.positions
    if options.context_length and options.context_length > positions:
        raise ModelError(f"it has {positions} positions, not {options.context_length}", place=str(path / "config.json"))
    if options.speculative_algorithm and not folder.has_mtp:
        raise ModelError(
            "speculation was asked for and the model has no MTP head",
            place=str(path),
            cure="train one with the mtp step, or leave --speculative-algorithm out",
        )
    text = TextCodec(path)
    if text.tokenizer.get_vocab_size() > folder.shape.vocabulary:
        raise ModelError("the tokenizer has more entries than the model", place=str(path / "tokenizer.json"))
    network = Network(folder, options.context(positions) + options.draft_tokens)
    draft = DraftHead(folder, network) if options.speculative_algorithm else None
    ends = set(folder.eos)
    named = text.settings.get("eos_token")
    token = text.tokenizer.token_to_id(named) if isinstance(named, str) else None
    if token is not None:
        ends.add(token)
    return LoadedModel(folder, network, draft, text, frozenset(ends))
