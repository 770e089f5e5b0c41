"""The lean loop: rollouts, one backward pass in pieces, one optimiser step. Equal to TRL's on every step (tested).

Rollouts that move nothing (advantage 0 and no KL term) are left out of the pass; the weights of the others stay. Those of
one group go through the model together (shared).
Not here: what is played and rewarded (course), TRL's trainer (trl_loop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from hat_components.model.course import attention
from hat_components.rl.course import Course, Prepared
from hat_components.rl.loss import policy_loss, token_weights
from hat_components.rl.reward import ALIKE
from hat_components.rl.rows import FlatRow
from hat_components.rl.shared import SHARED, shared_logps


def run_plain(course: Course) -> None:
    """Run the course to its end."""
    while not course.done:
        prepared = course.begin()
        with attention(course.model, SHARED):
            loss = backward(course, prepared)
        course.check(loss)
        course.move()


def backward(course: Course, prepared: Prepared) -> float:
    """Add the step's gradient to the weights, at most `rows_at_once` rollouts at a time; returns the loss."""
    config, rows = course.config, prepared.rows
    weights = token_weights(rows, config.loss)
    advantages = prepared.rollouts.composed.advantage
    taught = [i for i, row in enumerate(rows) if row.sampled() and (config.beta or abs(advantages[i]) > ALIKE)]
    if not taught:  # the optimiser's momentum still moves the weights, as with a gradient of zero
        for parameter in course.model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    total = 0.0
    for part in _together(rows, taught, config.rows_at_once):
        logps = torch.cat(shared_logps(course.model, [rows[i] for i in part], config.temperature))
        counts = torch.tensor([rows[i].sampled() for i in part])
        loss = policy_loss(
            logps,
            torch.tensor([float(advantages[i]) for i in part]).repeat_interleave(counts),
            torch.tensor([weights[i] for i in part]).repeat_interleave(counts),
            config.beta,
            torch.cat([prepared.reference[i] for i in part]) if config.beta else None,
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        total += loss.item()
    return total


def _together(rows: Sequence[FlatRow], chosen: Sequence[int], most: int) -> Iterator[list[int]]:
    """`chosen` in pieces of at most `most` rows that share their prompt, in order."""
    piece: list[int] = []
    for i in chosen:
        if piece and (len(piece) == most or rows[i].prompt != rows[piece[0]].prompt):
            yield piece
            piece = []
        piece.append(i)
    if piece:
        yield piece
