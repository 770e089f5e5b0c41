"""Which drafted tokens are kept: SGLang's two rules, and the statistics of acceptance in both common definitions.

Greedy rows keep drafts while each is the model's own most probable token, so that speculation changes no token.
Sampled rows follow SGLang's target-only rule: draft d is kept if a uniform coin u ≤ p(d) / threshold_acc or p(d) ≥
threshold_single; otherwise the token is drawn from the rest of p. With both thresholds at 1 the tokens are distributed
exactly as without speculation; below 1 they are not, which is why such a serving profile needs evidence of quality.
(SGLang applies the thresholds to sampled requests only, and on CPUs falls back to the greedy rule for all.)
Not here: the drafting (mtp), the loop (scheduler).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from hat_serving.engine.sampling import Draws, SamplingParams, cut, invert, temperatures


@dataclass(slots=True)
class AcceptStats:
    """Counts over verifications. `draft_tokens` is SGLang's `speculative_num_draft_tokens`: drafts + 1."""

    draft_tokens: int
    verified: int = 0
    correct: int = 0
    emitted: int = 0
    histogram: list[int] = field(default_factory=list)
    """How many verifications kept 0, 1, … drafts."""

    def add(self, kept: int, emitted: int) -> None:
        """Account for one verification that kept `kept` drafts and put out `emitted` tokens."""
        self.verified += 1
        self.correct += kept
        self.emitted += emitted
        self.histogram += [0] * (kept + 1 - len(self.histogram))
        self.histogram[kept] += 1

    @property
    def length(self) -> float:
        """Mean accepted length, the model's own token (bonus) included."""
        return self.emitted / self.verified if self.verified else 0.0

    @property
    def rate(self) -> float:
        """SGLang's `spec_accept_rate`: kept drafts ÷ proposed drafts; the bonus token counts on neither side."""
        proposed = self.verified * (self.draft_tokens - 1)
        return self.correct / proposed if proposed else 0.0

    @property
    def length_over_drafts(self) -> float:
        """The published report's rate: accepted length ÷ `draft_tokens`."""
        return self.length / self.draft_tokens


def accept_greedy(drafts: list[int], best: list[int]) -> list[int]:
    """`drafts` K tokens, `best` K + 1 most probable tokens → the tokens to put out, 1 to K + 1 of them."""
    kept = 0
    while kept < len(drafts) and drafts[kept] == best[kept]:
        kept += 1
    return best[: kept + 1]


def accept_sampled(
    drafts: list[int],
    logits: torch.Tensor,
    params: SamplingParams,
    draws: Draws,
    threshold_single: float,
    threshold_acc: float,
) -> list[int]:
    """`drafts` K tokens, `logits` [K + 1, V] → the tokens to put out, 1 to K + 1 of them; the last is always drawn."""
    rows = [params] * logits.shape[0]
    probabilities = cut(torch.softmax(logits / temperatures(rows), dim=-1), rows)
    made: list[int] = []
    for place, draft in enumerate(drafts):
        chance = float(probabilities[place, draft])
        if draws.uniform() <= chance / threshold_acc or chance >= threshold_single:
            made.append(draft)
            continue
        rest = probabilities[place].clone()
        rest[draft] = 0.0
        if float(rest.sum()) <= 0:
            made.append(draft)
            continue
        return [*made, invert(rest, draws.uniform())]
    return [*made, invert(probabilities[len(drafts)], draws.uniform())]
