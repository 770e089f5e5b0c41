"""`AnyModel`: samples for sessions with transformers' own `generate`, for every class that transformers has.

Always holds: what `MicroModel` promises, but for its caches: a context is token-in/token-out and encoded anew in each
call. Among several processes each generates its part of a batch and all get all of it, so that their sessions
stay in step, as sharded weights ask for. Not here: the fast forward pass for small dense models (network, generate).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from hat_components.model.codec import Codec
from hat_components.model.generate import MicroModel, _Row, draw
from hat_components.model.network import Precision
from hat_components.model.qwen import load_model
from hat_components.model.template import load_codec

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class AnyModel(MicroModel):
    """A `hat_harness.ports.BatchModel` over any causal language model, on whatever device it is."""

    def update(self, model: PreTrainedModel) -> None:
        """Sample with `model` from now on."""
        self._sampler = _Sampler(model, self.codec, self._rows)  # type: ignore[assignment]  # has what MicroModel asks for
        self.forget()


def policy_from_folder(
    folder: Path, *, temperature: float = 0.0, seed: int = 1, precision: Precision = "float32", rows: int = 64
) -> MicroModel:
    """The fastest policy that can play the model of a folder. Raises InputError."""
    codec = load_codec(folder)
    if type(codec) is Codec:
        model = load_model(folder)
        if model.config.model_type == "qwen3":
            return MicroModel(model, codec, temperature=temperature, seed=seed, precision=precision, rows=rows)
    else:
        model = load_model(folder, precision)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AnyModel(model.to(device).eval(), codec, temperature=temperature, seed=seed, precision=precision, rows=rows)


class _Sampler:
    """Stands in for `generate.Sampler`."""

    def __init__(self, model: Any, codec: Codec, rows: int) -> None:
        self._model, self._eos, self._rows = model, codec.eos, rows
        self.positions = int(model.config.max_position_embeddings)
        pad = codec.tokenizer.pad_token_id
        self._pad = self._eos if pad is None else int(pad)

    @property
    def network(self) -> _Sampler:
        """What is asked for its `positions`."""
        return self

    def run(self, rows: list[_Row], temperature: float) -> None:
        """Fill `ids` and `logprobs` of every row; 0 means greedy."""
        size = distributed.get_world_size() if distributed.is_initialized() else 1
        rank = distributed.get_rank() if size > 1 else 0
        order = sorted(rows, key=lambda row: len(row.prompt) + row.limit)
        training = self._model.training
        self._model.eval()
        try:
            for start in range(0, len(order), self._rows * size):
                group = order[start : start + self._rows * size]
                mine = group[rank::size]
                written = self._batch(mine or group[:1], temperature, size)  # whoever has none goes along
                if size > 1:
                    gathered: list[Any] = [None] * size
                    distributed.all_gather_object(gathered, written if mine else [])
                    for number in range(size):
                        _take(group[number::size], gathered[number])
                else:
                    _take(mine, written)
        finally:
            self._model.train(training)

    def _batch(self, rows: Sequence[_Row], temperature: float, size: int) -> list[tuple[list[int], list[float]]]:
        width = max(len(row.prompt) for row in rows)
        device = self._model.device
        ids = torch.tensor([[self._pad] * (width - len(row.prompt)) + row.prompt for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in rows], device=device)
        drawn = _Draw(temperature, [row.draw for row in rows])
        settings = GenerationConfig(
            max_new_tokens=max(row.limit for row in rows),
            do_sample=False,
            eos_token_id=self._eos,
            pad_token_id=self._pad,
            use_cache=True,
        )
        with torch.no_grad():
            self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=settings,
                logits_processor=LogitsProcessorList([drawn]),
                **({"synced_gpus": True} if size > 1 else {}),
            )
        return [drawn.row(number, row.limit, self._eos) for number, row in enumerate(rows)]


class _Draw(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """Draws each row's token by its own random numbers, and leaves `generate` no other choice."""

    def __init__(self, temperature: float, uniforms: Sequence[Callable[[], float]]) -> None:
        self._temperature, self._uniforms = temperature, uniforms
        self._tokens: list[list[int]] = []
        self._logprobs: list[list[float]] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`scores` [B, V] → zero at the drawn token, else minus infinity."""
        tokens, logprobs = draw(scores.float().cpu(), self._temperature, self._uniforms)
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        chosen = torch.full_like(scores, float("-inf"))
        chosen[torch.arange(len(tokens)), torch.tensor(tokens)] = 0.0
        return chosen

    def row(self, number: int, limit: int, eos: int) -> tuple[list[int], list[float]]:
        """What row `number` wrote, up to its end token or its limit."""
        ids = [tokens[number] for tokens in self._tokens][:limit]
        ids = ids[: ids.index(eos) + 1] if eos in ids else ids
        return ids, [logprobs[number] for logprobs in self._logprobs][: len(ids)]


def _take(rows: Sequence[_Row], written: Sequence[tuple[list[int], list[float]]]) -> None:
    for row, (ids, logprobs) in zip(rows, written, strict=True):
        row.ids, row.logprobs = ids, logprobs
        row.length = len(row.prompt) + len(ids) - 1
        row.kv = torch.empty(2, 0, 0, row.length, 0)  # no cache is kept: nothing stands for so many tokens
