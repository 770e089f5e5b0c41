"""Divergences between what student and teacher would write next (arXiv 2306.13649), with weights over tokens.

    forward (0)   KL(T, S) = sum_v T log(T / S)
    reverse (1)   KL(S, T) = sum_v S log(S / T)
    between (b)   b KL(T, M) + (1 - b) KL(S, M)    with M = b T + (1 - b) S

Always holds: 0 where both agree, never negative; the gradient flows into the student alone. S tokens, V vocabulary.
`sampled_reverse` is the reverse KL from one sample a token: the same gradient on average. Not here: the loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def divergence(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    """[S, V] logits of both → [S] divergences in nats."""
    ours, theirs = torch.log_softmax(student, -1), torch.log_softmax(teacher.detach(), -1)
    if beta == 0.0:
        return _kl(theirs, ours)
    if beta == 1.0:
        return _kl(ours, theirs)
    mixed = torch.logaddexp(theirs + math.log(beta), ours + math.log1p(-beta))
    return beta * _kl(theirs, mixed) + (1 - beta) * _kl(ours, mixed)


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p, q) of log-probabilities [S, V]."""
    return (p.exp() * (p - q)).sum(-1)


def sampled_reverse(student: torch.Tensor, teacher: torch.Tensor, baseline: torch.Tensor | float = 0.0) -> torch.Tensor:
    """[S] log-probabilities of tokens that the student sampled, under both → [S] losses whose value is the estimate
    log S - log T and whose expected gradient is that of KL(S, T) at each position, given its context.

    `baseline` [S] must not depend on the sampled token; it changes no expectation, and takes away most of the noise.
    """
    gap = (student - teacher).detach()
    return (gap - baseline) * torch.exp(student - student.detach()) + baseline


def others_mean(values: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """[S] values of rows of `counts` tokens → [S] the mean over all other rows' tokens; 0 where there is no other."""
    sizes = torch.tensor(counts)
    sums = torch.stack([part.sum() for part in torch.split(values, list(counts))])
    means = (sums.sum() - sums) / (sizes.sum() - sizes).clamp(min=1)
    return means.repeat_interleave(sizes)
