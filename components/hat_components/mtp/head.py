"""The draft head as a module: one decoder layer that foresees, from the model's state, the tokens after the next one.

The layer is of the model's own class, with full attention: dense Qwen3, its mixture, and Qwen3.5/3.6 of both kinds.

Chain t of depth 1 takes the model's normed state at t and the embedding of token t + 1, joined as [norm(embedding),
norm(state)], and foresees token t + 2; depth k takes depth k - 1's output and the embedding of token t + k, and
foresees token t + k + 1. Attention is that of inference, to the position: depth k of chain t sees the depth-1 keys of
chains up to t, then its own chain's keys of depths 2 to k.
Only keys and values of depth 1 are needed at every place; the rest is computed for the chains that are asked for.
Always holds: chains together give what stepping one chain at a time over a cache gives (tested).
Shapes: B rows, N tokens, C chains, H heads, D head dimension. Not here: names in files (tensors).
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
        self,
        model: PreTrainedModel,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        depth: int,
        places: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """`ids` [B, N] and the model's normed states `hidden` [B, N, width] → for each depth k the normed output states.

        With `places` [B, C], the chains that are asked for, each is [B, C, width], and what a chain says beyond its row
        means nothing. Without, it is [B, N - k, width]: place t foresees token t + k + 1 (the last one beyond the row).
        """
        count, last = ids.shape[1], ids.shape[1] - 1
        if count < 2:
            return []
        every = torch.arange(last, device=ids.device).expand(ids.shape[0], -1)
        chosen = every if places is None else places
        joined = self._join(model, ids[:, 1:], hidden[:, :-1])  # of all chains: their keys are what is seen
        trunk = self._remembered(model, joined, every)
        x = joined if places is None else _at(joined, places)
        own: list[tuple[torch.Tensor, torch.Tensor]] = []
        outputs: list[torch.Tensor] = []
        for k in range(1, min(depth, last) + 1):
            if k > 1:
                x = self._join(model, ids.gather(1, (chosen + k).clamp(max=last)), outputs[-1])
                own.append(self._remembered(model, x, chosen + k - 1))
            outputs.append(self.norm(self._layer(model, x, chosen, k, trunk, own)))
        if places is None:
            return [state[:, : count - k] for k, state in enumerate(outputs, 1)]
        return outputs

    def _join(self, model: PreTrainedModel, ids: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """What the layer takes: the embedding of the next token and the state before it, [B, C, width]."""
        kind = self.fc.weight.dtype
        embedded = self.pre_fc_norm_embedding(model.get_input_embeddings()(ids).to(kind))
        joined: torch.Tensor = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(state.to(kind))], dim=-1))
        return joined

    def _remembered(
        self, model: PreTrainedModel, x: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [B, H, C, D] of x [B, C, width] at `positions` [B, C]."""
        layer: Any = self.layers[0]
        attended, normed = layer.self_attn, layer.input_layernorm(x)
        shape = (*x.shape[:2], -1, attended.head_dim)
        key = attended.k_norm(attended.k_proj(normed).view(shape)).transpose(1, 2)
        _, key = self._rotate(key[:, :0], key, *model.model.rotary_emb(x, positions))
        value = attended.v_proj(normed).view(shape).transpose(1, 2)
        groups = attended.num_key_value_groups
        return key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)

    def _layer(
        self,
        model: PreTrainedModel,
        x: torch.Tensor,
        chains: torch.Tensor,
        k: int,
        trunk: tuple[torch.Tensor, torch.Tensor],
        own: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """The decoder layer at depth k over x [B, C, width] of `chains` [B, C]."""
        layer: Any = self.layers[0]
        attended = layer.self_attn
        asked = attended.q_proj(layer.input_layernorm(x))
        asked = asked.view(*x.shape[:2], attended.config.num_attention_heads, -1)
        gate = asked[..., attended.head_dim :]  # of Qwen3.5; of no width elsewhere
        query = attended.q_norm(asked[..., : attended.head_dim]).transpose(1, 2)
        turns = model.model.rotary_emb(x, chains + k - 1)  # chain t stands at t + k - 1
        query, _ = self._rotate(query, query[:, :0], *turns)
        mixed = chain_attention(query * attended.scaling, chains, trunk, own).transpose(1, 2)
        if gate.shape[-1]:
            mixed = mixed * torch.sigmoid(gate)
        x = x + attended.o_proj(mixed.flatten(2))
        out: torch.Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
        return out


def _at(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of x [B, T, width] at `places` [B, C]."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def chain_attention(
    query: torch.Tensor,
    chains: torch.Tensor,
    trunk: tuple[torch.Tensor, torch.Tensor],
    own: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    """`query` [B, H, C, D], scaled, of `chains` [B, C]; `trunk` are keys and values [B, H, T, D] of depth 1 at every
    place, `own` those [B, H, C, D] of the chains' deeper tokens.

    Chain t sees the trunk up to t, and of each deeper depth its own. Returns [B, H, C, D].
    """
    keys, values = trunk
    reach = keys.shape[2]
    first = query @ keys.transpose(-1, -2)  # [B, H, C, T]
    later = torch.arange(reach, device=query.device) > chains[..., None]  # [B, C, T]
    first = first.masked_fill(later[:, None], float("-inf"))
    mine = [(query * key).sum(-1, keepdim=True) for key, _ in own]  # each [B, H, C, 1]
    weights = torch.softmax(torch.cat([first, *mine], dim=-1), dim=-1)
    mixed = weights[..., :reach] @ values
    for number, (_, value) in enumerate(own):
        mixed = mixed + weights[..., reach + number, None] * value
    return mixed


def depth_weights(depth: int, decay: float) -> list[float]:
    """decay^(k-1) for k = 1 to depth, summing to 1."""
    raw = [decay**k for k in range(depth)]
    return [weight / sum(raw) for weight in raw]
