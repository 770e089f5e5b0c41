"""The lean loop: rollouts, one backward pass in pieces, one optimiser step. Equal to TRL's on every step (tested).

Not here: what is played and rewarded (course), TRL's trainer (trl_loop).
"""

from __future__ import annotations

import torch

from hat_components.model.course import attention
from hat_components.model.qwen import CAUSAL
from hat_components.rl.course import Course, Prepared
from hat_components.rl.loss import policy_loss, sampled_logps, token_weights


def run_plain(course: Course) -> None:
    """Run the course to its end."""
    while not course.done:
        prepared = course.begin()
        with attention(course.model, CAUSAL):
            loss = backward(course, prepared)
        course.check(loss)
        course.move()


def backward(course: Course, prepared: Prepared) -> float:
    """Add the step's gradient to the weights, `rows_at_once` rollouts at a time; returns the loss."""
    config, rows = course.config, prepared.rows
    weights = token_weights(rows, config.loss)
    advantages = prepared.rollouts.composed.advantage
    total = 0.0
    for start in range(0, len(rows), config.rows_at_once):
        part = range(start, min(len(rows), start + config.rows_at_once))
        if not any(rows[i].sampled() for i in part):
            continue
        logps = torch.cat(sampled_logps(course.model, [rows[i] for i in part], config.temperature))
        counts = torch.tensor([rows[i].sampled() for i in part])
        loss = policy_loss(
            logps,
            torch.tensor([float(advantages[i]) for i in part]).repeat_interleave(counts),
            torch.tensor([weights[i] for i in part]).repeat_interleave(counts),
            config.beta,
            torch.cat([prepared.reference[i] for i in part]),
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        total += loss.item()
    return total
