"""The NextN head of a model (`mtp.*`): proposes the tokens after the next one, from the model's own hidden state.

Position t of the head takes the model's normed hidden state at t and the embedding of token t + 1, joined as
[norm(embedding), norm(hidden)], and predicts token t + 2; further tokens come from the head's own output in the place
of the hidden state, as in SGLang's `*_mtp.py`. It has one decoder layer, whose keys and values are the bank's last
layer; embedding and vocabulary head are the model's.
Always holds: what it proposes changes speed only; what is accepted is decided elsewhere (speculate).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from hat_serving.engine.bank import Bank
from hat_serving.engine.folder import ModelFolder
from hat_serving.engine.network import Batch, Layer, Linear, Network, layer_weights


class DraftHead:
    """One NextN layer beside its model."""

    def __init__(self, folder: ModelFolder, network: Network) -> None:
        self._network = network
        weights = folder.weights
        self._fc = Linear(weights["mtp.fc.weight"].contiguous())
        self._embedding_norm = weights["mtp.pre_fc_norm_embedding.weight"]
        self._hidden_norm = weights["mtp.pre_fc_norm_hidden.weight"]
        self._norm = weights["mtp.norm.weight"]
        self._layer = Layer(layer_weights(folder, "mtp.layers.0."), folder.shape, folder.shape.layers)

    def forward(self, batch: Batch, hidden: torch.Tensor, bank: Bank) -> torch.Tensor:
        """Normed output states [N, hidden] for tokens `batch.ids` (each one ahead of its position) and `hidden` [N, …]."""
        shape = self._network.shape
        embedded = functional.embedding(batch.ids, self._network.embedding)
        left = functional.rms_norm(embedded, (shape.hidden,), self._embedding_norm, shape.epsilon)
        right = functional.rms_norm(hidden, (shape.hidden,), self._hidden_norm, shape.epsilon)
        x = self._layer(self._fc(torch.cat([left, right], dim=-1)), batch, bank)
        return functional.rms_norm(x, (shape.hidden,), self._norm, shape.epsilon)

    def propose(
        self, bank: Bank, first: int, batch: Batch, hidden: torch.Tensor, pick: torch.Tensor, at: list[int], steps: int
    ) -> torch.Tensor:
        """Draft `steps` tokens for each of B rows from `first`: [B, steps].

        `batch` and `hidden` [B * S, …] bring the head's cache up to date; `pick` [B] are the packed places of the
        rows' last true tokens, `at[b]` their positions. What `batch` shares, the further drafts share.
        """
        state = self.forward(batch, hidden, bank)[pick]  # [B, hidden]
        drafted = [self._network.logits(state).argmax(dim=-1)]
        for step in range(1, steps):
            ids = drafted[-1][:, None]
            further = self._network.rows_batch(bank, first, ids, [position + step for position in at], batch.shared)
            state = self.forward(further, state, bank)
            drafted.append(self._network.logits(state).argmax(dim=-1))
        return torch.stack(drafted, dim=1)
