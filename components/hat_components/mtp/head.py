"""The draft head as a module: one decoder layer that foresees, from the model's state, the tokens after the next one.

The layer is of the model's own class, with full attention: dense Qwen3, its mixture, and Qwen3.5/3.6 of both kinds.

Chain t of depth 1 takes the model's normed state at t and the embedding of token t + 1, joined as [norm(embedding),
norm(state)], and foresees token t + 2; depth k takes depth k - 1's output and the embedding of token t + k, and
foresees token t + k + 1. Attention is that of inference, to the position: depth k of chain t sees the depth-1 keys of
chains up to t, then its own chain's keys of depths 2 to k.
Always holds: all chains at once give what stepping one chain at a time over a cache gives (tested).
Shapes: B rows, T chains, H heads, D head dimension. Not here: names in files (tensors).
"""

from __future__ import annotations

import copy
import importlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hat_components.mtp.tensors import PREFIX
from hat_components.step import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


FAMILIES = {
    "qwen3": ("qwen3", "Qwen3"),
    "qwen3_moe": ("qwen3_moe", "Qwen3Moe"),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5"),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5Moe"),
}
"""`model_type` → module of transformers and prefix of its classes."""


class DraftHead(nn.Module):
    """The head's own weights; embedding and vocabulary head are the model's, and stay as they are."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        if config.model_type not in FAMILIES:
            raise InputError(
                f"the head of a {config.model_type} model cannot be trained here",
                place="mtp",
                cure="carry it over unchanged (hat_components.mtp.tensors.transplant)",
            )
        place, prefix = FAMILIES[config.model_type]
        module = importlib.import_module(f"transformers.models.{place}.modeling_{place}")
        norm, layer = getattr(module, f"{prefix}RMSNorm"), getattr(module, f"{prefix}DecoderLayer")
        self._rotate = module.apply_rotary_pos_emb
        one = copy.deepcopy(config)
        one.num_hidden_layers = 1
        if getattr(one, "layer_types", None):
            one.layer_types = ["full_attention"]
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.pre_fc_norm_embedding = norm(config.hidden_size, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(config.hidden_size, eps=config.rms_norm_eps)
        self.norm = norm(config.hidden_size, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList([layer(one, 0)])

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights under their names in a model folder."""
        return {f"{PREFIX}{name}": parameter.detach().clone() for name, parameter in self.named_parameters()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of all of them."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors().items()}

    def take(self, tensors: dict[str, torch.Tensor]) -> None:
        """Load weights by their names in a folder."""
        own = {name.removeprefix(PREFIX): tensor.float() for name, tensor in tensors.items()}
        self.load_state_dict(own, strict=True)

    def forward(
        self, model: PreTrainedModel, ids: torch.Tensor, hidden: torch.Tensor, depth: int
    ) -> list[torch.Tensor]:
        """`ids` [B, N] and the model's normed states `hidden` [B, N, width] → for each depth k the normed output states
        [B, N - k, width]: place t foresees token t + k + 1 (the last place a token beyond the row)."""
        outputs: list[torch.Tensor] = []
        keys: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        state = hidden.float()
        for k in range(1, depth + 1):
            chains = ids.shape[1] - k
            if chains < 1:
                break
            embedded = model.get_input_embeddings()(ids[:, k:]).float()
            joined = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state[:, :chains])]
            state = self.norm(self._layer(model, self.fc(torch.cat(joined, dim=-1)), k, keys, values))
            outputs.append(state)
        return outputs

    def _layer(
        self, model: PreTrainedModel, x: torch.Tensor, k: int, keys: list[torch.Tensor], values: list[torch.Tensor]
    ) -> torch.Tensor:
        """The decoder layer at depth k over x [B, T, width]; adds its keys and values."""
        layer: Any = self.layers[0]
        attended = layer.self_attn
        shape = (*x.shape[:2], -1, attended.head_dim)
        normed = layer.input_layernorm(x)
        asked = attended.q_proj(normed).view(*x.shape[:2], attended.config.num_attention_heads, -1)
        gate = asked[..., attended.head_dim :]  # of Qwen3.5; of no width elsewhere
        query = attended.q_norm(asked[..., : attended.head_dim]).transpose(1, 2)
        key = attended.k_norm(attended.k_proj(normed).view(shape)).transpose(1, 2)
        value = attended.v_proj(normed).view(shape).transpose(1, 2)
        places = torch.arange(k - 1, k - 1 + x.shape[1], device=x.device)[None]  # chain t stands at t + k - 1
        query, key = self._rotate(query, key, *model.model.rotary_emb(x, places))
        groups = attended.num_key_value_groups
        keys.append(key.repeat_interleave(groups, dim=1))
        values.append(value.repeat_interleave(groups, dim=1))
        mixed = chain_attention(query * attended.scaling, keys, values).transpose(1, 2)
        if gate.shape[-1]:
            mixed = mixed * torch.sigmoid(gate)
        x = x + attended.o_proj(mixed.flatten(2))
        out: torch.Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
        return out


def chain_attention(query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """`query` [B, H, T, D], scaled; `keys[0]`, `values[0]` [B, H, >=T, D] of depth 1, the others of deeper ones.

    Chain t sees keys[0] up to t, and place t of each deeper one. Returns [B, H, T, D].
    """
    chains = query.shape[2]
    first = query @ keys[0][:, :, :chains].transpose(-1, -2)  # [B, H, T, T]
    first = first.masked_fill(torch.ones(chains, chains, dtype=torch.bool, device=query.device).triu(1), float("-inf"))
    own = [(query * key[:, :, :chains]).sum(-1, keepdim=True) for key in keys[1:]]  # each [B, H, T, 1]
    weights = torch.softmax(torch.cat([first, *own], dim=-1), dim=-1)
    mixed = weights[..., :chains] @ values[0][:, :, :chains]
    for number, value in enumerate(values[1:]):
        mixed = mixed + weights[..., chains + number, None] * value[:, :, :chains]
    return mixed


def depth_weights(depth: int, decay: float) -> list[float]:
    """decay^(k-1) for k = 1 to depth, summing to 1."""
    raw = [decay**k for k in range(depth)]
    return [weight / sum(raw) for weight in raw]
