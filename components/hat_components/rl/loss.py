"""The policy loss of GRPO, strictly on policy, and log-probabilities of sampled tokens.

    per[s]  = -A[i] exp(l[s] - sg l[s]) + beta k3[s] exp(l[s] - sg l[s])        sg: no gradient; i: the token's rollout
    k3[s]   = exp(r[s] - l[s]) - (r[s] - l[s]) - 1                              r: log-probability under the reference
    loss    = sum_s weight[s] per[s]

Each rollout is used for one step only, so the probability ratio is 1 and clipping it would do nothing. The KL term has
the importance weight that makes its gradient that of the true KL divergence (as TRL does by default). Weights are
1 / tokens of the step (`dapo`, arXiv 2503.14476) or 1 / (rollouts x tokens of the rollout) (`grpo`, arXiv 2402.03300).
S: sampled tokens of a pass. Not here: advantages (reward), the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from hat_components.rl.rows import FlatRow

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def policy_loss(
    logps: torch.Tensor,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    beta: float = 0.0,
    reference: torch.Tensor | None = None,
) -> torch.Tensor:
    """All arguments [S]. The sum over passes is the step's loss, however the rollouts are cut into passes."""
    ratio = torch.exp(logps - logps.detach())
    per_token = -advantages * ratio
    if beta:
        if reference is None:
            raise ValueError("a KL term needs a reference")
        per_token = per_token + beta * k3(logps, reference) * ratio
    return (weights * per_token).sum()


def k3(logps: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Schulman's estimate of KL(policy, reference) from a token that the policy sampled; never negative."""
    difference = reference - logps
    return torch.exp(difference) - difference - 1


def token_weights(rows: Sequence[FlatRow], rule: Literal["dapo", "grpo"]) -> list[float]:
    """For each rollout of a step, the weight of each of its sampled tokens."""
    if rule == "dapo":
        total = max(1, sum(row.sampled() for row in rows))
        return [1.0 / total] * len(rows)
    return [1.0 / (len(rows) * max(1, row.sampled())) for row in rows]


def sampled_logits(
    model: PreTrainedModel, rows: Sequence[FlatRow], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [S, V] over the temperature that the sampled tokens were drawn from, and those tokens [S], row after row.

    The head runs at their positions alone. The rows are padded on the right, for an attention that needs no mask
    (model.qwen.CAUSAL).
    """
    width = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *([0] * (width - len(row.ids)))] for row in rows])
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [B, T, hidden]
    flat = [
        (number * width + len(row.prompt) + place - 1, row.completion[place])
        for number, row in enumerate(rows)
        for place, kept in enumerate(row.mask)
        if kept
    ]
    before = torch.tensor([place for place, _ in flat], dtype=torch.long)
    tokens = torch.tensor([token for _, token in flat], dtype=torch.long)
    return model.lm_head(hidden.flatten(0, 1)[before]).float() / temperature, tokens


def sampled_logps(model: PreTrainedModel, rows: Sequence[FlatRow], temperature: float) -> list[torch.Tensor]:
    """For each row, [sampled] log-probabilities of its sampled tokens."""
    logits, tokens = sampled_logits(model, rows, temperature)
    logps = torch.log_softmax(logits, dim=-1).gather(1, tokens[:, None])[:, 0]
    return list(torch.split(logps, [row.sampled() for row in rows]))
