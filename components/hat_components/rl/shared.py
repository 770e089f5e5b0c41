"""Rollouts of one group in one pass: the prompt that they share is run once, and each completion looks at it and itself.

A group of eight with a prompt of 450 tokens and completions of 170 is 1,800 tokens instead of 5,000. Always holds: the
log-probabilities are those of each row alone, up to the order of additions (tested, with their gradient).
Shapes: P prompt tokens, N rows, L tokens of the longest completion, H heads, D head dimension. Not here: the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from transformers import AttentionInterface

from hat_components.model.qwen import causal_attention
from hat_components.rl.rows import FlatRow

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHARED = "hat_shared"
"""Name of the attention in transformers' AttentionInterface; its passes name `prompt` (P) and `rows` (N)."""


def shared_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    prompt: int,
    rows: int,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention over [1, H, P + N L, D]: a prompt, then N completions padded on the right to L.

    Returns [1, P + N L, H, D].
    """
    if attention_mask is not None or dropout:
        raise ValueError("this attention is for right-padded completions without mask or dropout")
    heads, (long, dim) = query.shape[1], query.shape[2:]
    groups, length = heads // key.shape[1], (long - prompt) // rows
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scale = dim**-0.5 if scaling is None else scaling
    first, _none = causal_attention(
        module, query[:, :, :prompt], key[:, :, :prompt], value[:, :, :prompt], None, scaling=scale
    )

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[0, :, prompt:].view(heads, rows, length, dim)

    asked, keys = own(query) * scale, own(key)
    on_prompt = asked.flatten(1, 2) @ key[0, :, :prompt].transpose(-1, -2)  # [H, N L, P]
    on_own = asked @ keys.transpose(-1, -2)  # [H, N, L, L]
    on_own = on_own.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
    scores = torch.cat([on_prompt.view(heads, rows, length, prompt), on_own], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    mixed = weights[..., :prompt].flatten(1, 2) @ value[0, :, :prompt]  # [H, N L, D]
    mixed = mixed + (weights[..., prompt:] @ own(value)).flatten(1, 2)
    return torch.cat([first, mixed.transpose(0, 1)[None]], dim=1), None


AttentionInterface.register(SHARED, shared_attention)


def shared_logps(model: PreTrainedModel, rows: Sequence[FlatRow], temperature: float) -> list[torch.Tensor]:
    """For each row, [sampled] log-probabilities of its sampled tokens. All rows have one prompt; the model's attention
    is `SHARED`."""
    prompt, length = len(rows[0].prompt), max(len(row.completion) for row in rows)
    if any(row.prompt != rows[0].prompt for row in rows):
        raise ValueError("these rows do not share their prompt")
    padded = [token for row in rows for token in (*row.completion, *([0] * (length - len(row.completion))))]
    places = [*range(prompt), *(list(range(prompt, prompt + length)) * len(rows))]
    hidden = model.model(
        input_ids=torch.tensor([[*rows[0].prompt, *padded]]),
        position_ids=torch.tensor([places]),
        use_cache=False,
        prompt=prompt,
        rows=len(rows),
    ).last_hidden_state[0]  # [P + N L, width]
    before, tokens = [], []
    for number, row in enumerate(rows):
        for place, kept in enumerate(row.mask):
            if kept:
                before.append(prompt + number * length + place - 1 if place else prompt - 1)
                tokens.append(row.completion[place])
    logits = model.lm_head(hidden[torch.tensor(before)]).float() / temperature
    logps = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return list(torch.split(logps, [row.sampled() for row in rows]))
