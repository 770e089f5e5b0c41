"""One look at a rollout: observe, decide, write the decision down, act. The same on Kubernetes and on a laptop.

Always holds: the new state is saved before anything is changed, so whoever saves is the one who may act, and a
controller that dies in between is continued by the next one. A command that fails is told in the state and tried
again at the next look. Not here: how often to look (controller), where the state is kept (the caller).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hat_serving.canary.backends import Reading, TrafficBackend
from hat_serving.canary.errors import ClusterError
from hat_serving.canary.machine import advance
from hat_serving.canary.metrics import MetricSource
from hat_serving.canary.spec import RolloutSpec
from hat_serving.canary.state import (
    TERMINAL,
    Command,
    Measure,
    Observation,
    Prepare,
    Promote,
    Retire,
    SetWeight,
    State,
)
from hat_serving.errors import RolloutError


@dataclass(frozen=True, slots=True)
class Wishes:
    """What people ask for at this moment."""

    paused: bool = False
    promote: bool = False
    abort: bool = False
    resume: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look did."""

    state: State
    commands: tuple[Command, ...]
    trouble: str = ""
    """What went wrong while acting; it is tried again."""


def look(
    spec: RolloutSpec,
    state: State,
    backend: TrafficBackend,
    metrics: MetricSource | None,
    *,
    wishes: Wishes,
    check: Callable[[], str],
    save: Callable[[State], None],
    note: str = "",
    clock: Callable[[], float] = time.time,
) -> Look:
    """One look.

    `check`: why the rollout may not begin; asked until it has nothing to say, and not again once the canary is being
    made. `save` may refuse by raising. `note`: trouble of the look before, so that the state tells of it.
    """
    if state.phase in TERMINAL:
        return Look(state, ())
    reading, trouble = _read(backend)
    before = state.phase == "Pending" and state.waiting_since is None
    blocked = check() if before and not wishes.abort else ""
    seen = Observation(
        now=clock(),
        effective=reading.effective,
        ready=reading.ready,
        blocked=blocked,
        promoted=reading.promoted,
        retired=reading.retired,
        paused=wishes.paused,
        promote=wishes.promote,
        abort=wishes.abort,
        resume=wishes.resume,
        note=trouble or note or reading.note,
    )
    result = advance(spec, state, seen, settle=backend.settle)
    wanted = next((command for command in result.commands if isinstance(command, Measure)), None)
    if wanted is not None and metrics is not None:
        measured = metrics.measure(spec, wanted.names, wanted.window, result.state.desired_weight)
        result = advance(spec, result.state, replace(seen, measurements=measured), settle=backend.settle)
    save(result.state)
    trouble = _act(backend, result.commands) or trouble
    return Look(result.state, result.commands, trouble)


def _read(backend: TrafficBackend) -> tuple[Reading, str]:
    """What is in force; an unreachable cluster is "cannot be told", which stops every clock."""
    try:
        return backend.read(), ""
    except RolloutError as error:
        return Reading(None, note=str(error)), str(error)


def _act(backend: TrafficBackend, commands: tuple[Command, ...]) -> str:
    for command in commands:
        try:
            match command:
                case Prepare():
                    backend.prepare()
                case SetWeight(percent):
                    backend.set_weight(percent)
                case Promote():
                    backend.promote()
                case Retire():
                    backend.retire()
                case Measure():
                    pass
        except ClusterError as error:
            if error.code != 409:
                return str(error)
        except RolloutError as error:
            return str(error)
    return ""
