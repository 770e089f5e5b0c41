"""What a rollout remembers between two looks, what a look sees, and what may be asked for.

`State` lives in the resource's status (camelCase, times in RFC 3339), so a controller may die at any moment. Times
are seconds since the epoch, read from the clock by the driver and never here.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from hat_serving.canary.spec import Model

Phase = Literal["Pending", "Progressing", "Paused", "Promoting", "Healthy", "Aborting", "Degraded"]
Verdict = Literal["success", "failure", "inconclusive", "error", "waiting"]
PauseReason = Literal["PauseStep", "Requested", "Inconclusive"]
TERMINAL: tuple[Phase, ...] = ("Healthy", "Degraded")


def _seconds(value: str | float) -> float:
    if isinstance(value, int | float):
        return float(value)
    return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()


def _written(value: float) -> str:
    moment = datetime.datetime.fromtimestamp(value, datetime.UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


Time = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Seconds since the epoch, to the microsecond."""


class Tally(Model):
    """What the measurements of one metric add up to."""

    name: str
    successes: int = 0
    failures: int = 0
    inconclusives: int = 0
    errors: int = 0
    consecutive_errors: int = 0
    next_at: Time = 0.0
    """When it is due again."""
    outcome: Literal["success", "failure", "inconclusive"] | None = None
    """None: it goes on."""
    value: float | None = None
    """Last measured number."""
    message: str = ""
    """What the last measurement said."""


class Window(Model):
    """One stretch during which a step's clock ran: the evidence that a release cites."""

    step: int
    weight: int
    started: Time
    ended: Time
    metrics: dict[str, float] = Field(default_factory=dict)
    """Last value per metric that was measured in it."""


class State(Model):
    """A rollout between two looks."""

    phase: Phase = "Pending"
    step: int = 0
    desired_weight: int = 0
    effective_weight: int | None = None
    """Last seen; None when it could not be read."""
    waiting_since: Time | None = None
    """Since when the split, the canary or the promotion has been awaited; counts towards the progress deadline."""
    matched_since: Time | None = None
    """Since when the split in force has equalled the wanted one without a break."""
    clock_started: Time | None = None
    """When this step's clock began to run; None while it does not."""
    step_done: bool = False
    """The step has given all that it asked for; background metrics may still be awaited."""
    pause_reason: PauseReason | None = None
    resume_seen: str = ""
    """Value of the resume annotation that has been acted upon."""
    analysis: tuple[Tally, ...] = ()
    """Of the present analysis step."""
    background: tuple[Tally, ...] = ()
    windows: tuple[Window, ...] = ()
    reason: str = ""
    """One CamelCase word for why it is in this phase."""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one metric."""

    name: str
    verdict: Verdict
    value: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look saw. Everything in it is read from the cluster, never from what was asked for."""

    now: float
    effective: int | None = None
    """Percent that the canary really gets; None when it cannot be told."""
    ready: bool = False
    """The canary can take traffic."""
    blocked: str = ""
    """Why the rollout may not begin (preflight); empty when it may."""
    promoted: bool = False
    """The canary is the stable version now, and alone."""
    retired: bool = False
    """Nothing of the canary is left."""
    paused: bool = False
    abort: bool = False
    resume: str = ""
    """Value of the resume annotation."""
    measurements: tuple[Measurement, ...] = ()
    note: str = ""
    """What the backend says about the split or the canary, for the message."""
    promote: bool = False
    """Someone wants it to go on without waiting."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the canary's workload."""


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Give the canary this percent."""

    percent: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure these metrics over the last `window` seconds."""

    names: tuple[str, ...]
    window: float


@dataclass(frozen=True, slots=True)
class Promote:
    """Make the canary the stable version."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Take the canary's workload away; it gets no traffic any more."""


Command = Prepare | SetWeight | Measure | Promote | Retire


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, and what to do now. Commands are idempotent and are repeated until their effect is seen."""

    state: State
    commands: tuple[Command, ...] = ()


def to_status(state: State) -> dict[str, Any]:
    """For the resource's status; None stays as an explicit null, so that a merge patch clears the field."""
    return state.model_dump(mode="json", by_alias=True)


def from_status(status: dict[str, Any] | None) -> State:
    """Back again; a resource without status is at its beginning. Fields of the controller's own are left out."""
    known = {field.alias or name for name, field in State.model_fields.items()}
    return State.model_validate({key: value for key, value in (status or {}).items() if key in known})
