"""Which token comes next: SGLang's sampling parameters, their order of effect, and seeded draws.

Order, as in SGLang: penalties and the ban of end tokens, logit bias, temperature, softmax, then top-k, top-p, min-p.
Log-probabilities are those of the distribution after temperature and before the cuts; greedy is temperature one.
Always holds: a row's draws depend on its own seed and count of draws only, not on the batch. Shapes: B rows, V
vocabulary. Not here: speculative acceptance (speculate).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from hat_serving.engine.errors import CallError

GREEDY_BELOW = 1e-6
MAX_STOPS = 32


@dataclass(slots=True)
class SamplingParams:
    """SGLang's sampling parameters, those of them that this engine has."""

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    sampling_seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def shaped(self) -> bool:
        """Whether logits depend on more than the model: such rows are never speculated."""
        return bool(
            self.frequency_penalty
            or self.presence_penalty
            or self.repetition_penalty != 1.0
            or self.logit_bias
            or self.min_new_tokens
        )

    def verify(self, vocabulary: int) -> None:
        """Raise CallError, in SGLang's words, for what is out of range."""
        for problem in self._problems(vocabulary):
            raise CallError(problem)

    def _problems(self, vocabulary: int) -> Sequence[str]:
        found = []
        if not math.isfinite(self.temperature) or self.temperature < 0:
            found.append(f"temperature must be a non-negative finite number, got {self.temperature}.")
        if not 0 < self.top_p <= 1:
            found.append(f"top_p must be in (0, 1], got {self.top_p}.")
        if not 0 <= self.min_p <= 1:
            found.append(f"min_p must be in [0, 1], got {self.min_p}.")
        # SGLang rewrites top_k for greedy requests before it looks at it, so that only sampled ones can be refused.
        if self.temperature >= GREEDY_BELOW and self.top_k < 1 and self.top_k != -1:
            found.append(f"top_k must be -1 (disable) or at least 1, got {self.top_k}.")
        for name in ("frequency_penalty", "presence_penalty"):
            if not -2 <= getattr(self, name) <= 2:
                found.append(f"{name} must be in [-2, 2], got {getattr(self, name)}.")
        if not 0 < self.repetition_penalty <= 2:
            found.append(f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {self.repetition_penalty}.")
        if self.max_new_tokens is not None and self.max_new_tokens < 0:
            found.append(f"max_new_tokens must be at least 0, got {self.max_new_tokens}.")
        ceiling = math.inf if self.max_new_tokens is None else self.max_new_tokens
        if not 0 <= self.min_new_tokens <= ceiling:
            found.append(f"min_new_tokens must be in [0, max_new_tokens({ceiling})], got {self.min_new_tokens}.")
        if any(not 0 <= token < vocabulary for token in self.logit_bias):
            found.append(f"logit_bias must has keys in [0, {vocabulary - 1}], got {sorted(self.logit_bias)}.")
        if len(self.stop) > MAX_STOPS:
            found.append(f"at most {MAX_STOPS} stop strings are allowed, got {len(self.stop)}")
        return found


class Draws:
    """A row's source of uniform numbers."""

    __slots__ = ("_random",)

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(str(seed))

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        return self._random.random()


def shape_logits(
    logits: torch.Tensor, params: SamplingParams, counts: Counter[int], prompt: frozenset[int], ends: Sequence[int]
) -> None:
    """Apply what depends on the row's own tokens to its `logits` [V], in place. `counts` are generated tokens."""
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(prompt | counts.keys()))
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if counts and (params.frequency_penalty or params.presence_penalty):
        seen = torch.tensor(list(counts))
        times = torch.tensor(list(counts.values()), dtype=logits.dtype)
        logits[seen] -= params.frequency_penalty * times + params.presence_penalty
    if counts.total() < params.min_new_tokens and ends:
        logits[torch.tensor(list(ends))] = float("-inf")
    for token, bias in params.logit_bias.items():
        logits[token] += bias


def temperatures(params: Sequence[SamplingParams]) -> torch.Tensor:
    """[B, 1], one for greedy rows."""
    return torch.tensor([1.0 if row.greedy else row.temperature for row in params])[:, None]


def cut(probabilities: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Top-k, top-p and min-p over softmaxed rows [B, V], renormed; rows without cuts stay as they are."""
    if all(row.top_k in {-1, 0} and row.top_p >= 1 and row.min_p <= 0 for row in params):
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True)
    size = probabilities.shape[-1]
    ranks = torch.arange(size)
    most = torch.tensor([row.top_k if row.top_k > 0 else size for row in params])[:, None]
    nucleus = torch.tensor([row.top_p for row in params])[:, None]
    least = torch.tensor([row.min_p for row in params])[:, None] * ordered[:, :1]
    before = ordered.cumsum(dim=-1) - ordered
    dropped = (ranks >= most) | (before > nucleus) | (ordered < least)
    kept = torch.zeros_like(probabilities).scatter_(1, order, ordered.masked_fill(dropped, 0.0))
    return kept / kept.sum(dim=-1, keepdim=True)


def invert(probabilities: torch.Tensor, uniform: float) -> int:
    """The token of `probabilities` [V] (not necessarily normed) at the point `uniform` of its cumulative sum."""
    cumulative = probabilities.double().cumsum(dim=0)
    point = uniform * float(cumulative[-1])
    token = int(torch.searchsorted(cumulative, point, right=True))
    if token >= len(probabilities) or probabilities[token] <= 0:  # the point fell on the rounded end
        token = int(probabilities.nonzero()[-1])
    return token
