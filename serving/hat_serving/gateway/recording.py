"""What is kept of a turn beside the conversation: metrics, rows for comparing arms, the trace.

Always holds: labels are workspace, release, arm and harness, never a room or a viewer; rows for comparing arms are written in
the turn's own transaction and only while arms are compared. Not here: running turns (host).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hat_harness.digest import short
from hat_harness.trace import Trace, TurnSummary
from hat_serving.experiment import records
from hat_serving.experiment.assignment import Assigned
from hat_serving.gateway.live import Deployment, LiveArm, Move
from hat_serving.gateway.metrics import Metrics
from hat_serving.gateway.shadow import Shown
from hat_serving.gateway.traces import TraceWriter

GONE = "~gone"
"""Ends the session's name in the trace of a turn that was given up: it is not part of the conversation."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished turn."""

    conversation: str
    number: int
    unit: str
    """The viewer."""
    arm: LiveArm
    move: Move
    fresh: bool
    """The conversation began with it."""
    place: Assigned | None
    """Where the unit belongs; None while nothing is compared."""
    turn: TurnSummary
    seconds: float
    first_s: float | None
    fell_back: bool = False
    """Another engine than the arm's answered at least once."""


class Recorder:
    """Keeps the records of one gateway."""

    def __init__(self, workspace: str, metrics: Metrics, traces: TraceWriter | None) -> None:
        self.metrics = metrics
        self._workspace = workspace
        self._traces = traces

    def labels(self, arm: LiveArm) -> tuple[str, str, str, str]:
        """Metric labels of an arm."""
        return self._workspace, short(arm.release), arm.name, short(arm.digest)

    def rows(self, deployment: Deployment, measured: Measured, *, waits: bool = False) -> Callable[[Any], None] | None:
        """What is written in the turn's transaction; None while no arms are compared.

        A turn that `waits` for its client is no turn yet: only the unit's exposure is written, and a change of arms.
        """
        place = measured.place
        if place is None and not measured.move:
            return None
        turn = measured.turn
        record = records.TurnRecord(
            deployment.name,
            measured.conversation,
            measured.number,
            measured.unit,
            place.unit if place is not None else measured.unit,
            measured.arm.name,
            measured.arm.release,
            measured.move,
            turn.outcome,
            measured.seconds,
            measured.first_s,
            turn.prompt_tokens,
            turn.completion_tokens,
            len(turn.calls),
            sum(bool(call.failure) for call in turn.calls),
            _exposures(deployment, measured),
        )

        if waits:  # what was done and taken so far comes with the turn's end
            record = replace(
                record, seconds=0.0, first_s=None, tokens_in=0, tokens_out=0, tool_calls=0, tool_failures=0
            )

        def write(tx: Any) -> None:
            """The rows; a unit that is exposed for the first time is counted for its assigned arm."""
            workspace, release, _, harness = self.labels(measured.arm)
            for arm in records.write(tx, self._workspace, record, whole=not waits or bool(measured.move)):
                self.metrics.exposed.labels(workspace, release, arm, harness).inc()

        return write

    def done(self, measured: Measured, trace: Trace) -> None:
        """Count a stored turn and queue its trace."""
        labels, turn, metrics = self.labels(measured.arm), measured.turn, self.metrics
        metrics.turns.labels(*labels, turn.outcome).inc()
        metrics.turn_seconds.labels(*labels).observe(measured.seconds)
        if measured.first_s is not None:
            metrics.first_text_seconds.labels(*labels).observe(measured.first_s)
        metrics.model_calls.labels(*labels).inc(turn.model_calls)
        for call in turn.calls:
            metrics.tool_calls.labels(*labels, call.failure).inc()
        metrics.tokens.labels(*labels, "in").inc(turn.prompt_tokens)
        metrics.tokens.labels(*labels, "out").inc(turn.completion_tokens)
        self.moved(measured)
        if self._traces is not None:
            self._traces.put(trace, _told(measured.arm))
            metrics.dropped_traces.set(self._traces.dropped)

    def moved(self, measured: Measured) -> None:
        """Count a change of arms, also of a turn that waits for its client."""
        labels = self.labels(measured.arm)
        if measured.move:
            self.metrics.moves.labels(*labels, measured.move).inc()
        if measured.fell_back or measured.move in ("abort", "gone"):
            self.metrics.fallbacks.labels(*labels).inc()

    def gone(self, arm: LiveArm, trace: Trace, told: int) -> None:
        """Count a turn whose client went away, and queue its trace (entries from `told`) beside those of its conversation."""
        self.metrics.turns.labels(*self.labels(arm), "cancelled").inc()
        if self._traces is not None:
            parts = {"entries": trace.entries[told:], "segments": trace.segments[-1:]}
            self._traces.put(trace.model_copy(update={"session": trace.session + GONE, **parts}), _told(arm))

    def shadow(self, shown: Shown) -> None:
        """Count a shadow's answer under its own arm and queue its trace."""
        labels = self.labels(shown.arm)
        self.metrics.shadows.labels(*labels, shown.turn.outcome).inc()
        if self._traces is not None:
            self._traces.put(shown.trace, _told(shown.arm) | {"shadow": "true"})


def _told(arm: LiveArm) -> dict[str, str]:
    return {"arm": arm.name, "release": arm.release}


def _exposures(deployment: Deployment, measured: Measured) -> tuple[tuple[str, str], ...]:
    """(subject, assigned arm): logged with a conversation's first turn, for units that count."""
    place = measured.place
    if place is None or not measured.fresh or not place.counted:
        return ()
    if place.trial is not None:
        return ((records.experiment_subject(place.trial.name), place.arm),)
    if deployment.exposes:
        return ((records.rollout_subject(deployment.name, deployment.exposes), place.arm),)
    return ()
