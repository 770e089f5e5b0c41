"""What an experiment is: arms, the metric that decides, guardrails, ramp, and where it stands. Frozen pydantic.

Always holds: what decides is fixed before the first unit is exposed; an experiment that has begun never changes its arms,
its metric or its share, only its stage and its state. Not here: how it changes (lifecycle), what came out (analysis).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hat_serving.errors import SettingsError

NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
MetricName = Literal[
    "orders",
    "revenue",
    "refunds",
    "thumbs",
    "thumbs_down",
    "turns",
    "safe_replies",
    "tool_failures",
    "seconds_per_reply",
    "cost_per_reply",
]
Direction = Literal["higher", "lower"]
BETTER: dict[MetricName, Direction] = {
    "orders": "higher",
    "revenue": "higher",
    "refunds": "lower",
    "thumbs": "higher",
    "thumbs_down": "lower",
    "turns": "higher",
    "safe_replies": "lower",
    "tool_failures": "lower",
    "seconds_per_reply": "lower",
    "cost_per_reply": "lower",
}
"""Which way is better, unless an experiment says otherwise."""

SHOWN: dict[MetricName, tuple[float, str, str, int]] = {
    "orders": (100.0, "points", "个百分点", 2),
    "refunds": (100.0, "points", "个百分点", 2),
    "thumbs_down": (100.0, "points", "个百分点", 2),
    "safe_replies": (100.0, "points", "个百分点", 2),
    "tool_failures": (100.0, "points", "个百分点", 2),
    "revenue": (0.01, "per viewer", "每位观众", 2),
    "thumbs": (1.0, "per viewer", "每位观众", 3),
    "turns": (1.0, "turns", "轮", 2),
    "seconds_per_reply": (1.0, "s", "秒", 3),
    "cost_per_reply": (1.0, "per reply", "每条回复", 6),
}
"""Metric → (factor to what is shown, unit, unit in Chinese, digits)."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArmPlan(BaseModel):
    """An arm beside the stable one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=NAME, max_length=64)
    harness: str
    """`NAME@sha256:…`, so that every replica loads the same bytes."""
    digest: str
    """Of the harness."""
    release: str = ""
    """Digest of the release; made from harness and engine when none is named."""
    engine: str = Field(default="", max_length=64)
    """Logical name of the engine; "" is the primary."""
    weight: float = Field(default=0.0, ge=0, le=100)
    """Percent of the units."""
    aborted: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        """(harness digest, release): what a conversation that runs on it has written down."""
        return self.digest, self.release


class ArmSpec(_Model):
    """An arm as it is asked for."""

    name: str = Field(pattern=NAME, max_length=64)
    harness: str = Field(default="", max_length=256)
    """`NAME`, `NAME@POINTER` or `NAME@sha256:…`; "" is what the stable arm serves."""
    engine: str = Field(default="", max_length=64)
    """Logical name of an engine of the gateway; "" is the primary."""
    release: str = Field(default="", max_length=71)
    weight: float = Field(default=50.0, gt=0, le=100)
    """Percent of the experiment's units at full ramp; the control gets the rest."""


class ShadowSpec(_Model):
    """An arm that answers copies of the control's turns; nobody sees what it says, and nothing that it does has effects."""

    name: str = Field(pattern=NAME, max_length=64)
    harness: str = Field(default="", max_length=256)
    engine: str = Field(default="", max_length=64)
    release: str = Field(default="", max_length=71)
    percent: float = Field(default=10.0, gt=0, le=100)
    """Of the control's turns."""


class Guardrail(_Model):
    """A metric that must not get worse by more than `margin`."""

    metric: MetricName
    margin: float = Field(gt=0)
    """In the metric's own unit."""


class RampStep(_Model):
    """One step of the way to the full weights."""

    percent: float = Field(gt=0, le=100)
    """Of each arm's weight."""
    hold_s: float = Field(ge=0)
    """Seconds at least before the next one."""


class ExperimentSpec(_Model):
    """An experiment as it is asked for."""

    name: str = Field(pattern=NAME, max_length=64)
    deployment: str = Field(min_length=1, max_length=128)
    """Name under which clients ask for the agent."""
    description: str = Field(default="", max_length=2000)
    arms: tuple[ArmSpec, ...] = Field(min_length=1, max_length=8)
    control: str = Field(default="", max_length=256)
    """Harness of the control arm; "" is the release that stands now, or `react-baseline` where an arm *is* that one."""
    control_name: str = Field(default="control", pattern=NAME, max_length=64)
    shadows: tuple[ShadowSpec, ...] = Field(default=(), max_length=2)
    unit: Literal["viewer", "conversation", "room"] = "viewer"
    share: float = Field(default=100.0, gt=0, le=100)
    """Percent of the exclusion group's units that take part."""
    group: str = Field(default="", max_length=64)
    """Experiments of one exclusion group never share a unit; "" is the deployment's own group."""
    metric: MetricName = "orders"
    """What decides."""
    better: Direction | None = None
    margin: float | None = Field(default=None, gt=0)
    """Differences smaller than this do not matter; without it nothing is called equivalent."""
    target_units: int = Field(default=2000, ge=100)
    """Units of both arms at which the interval is narrowest; fixed before the first look."""
    level: float = Field(default=0.95, gt=0.5, lt=1)
    guardrails: tuple[Guardrail, ...] = ()
    on_harm: Literal["stop", "tell"] = "stop"
    """What happens once a guardrail shows harm, or the sample ratio is broken."""
    ramp: tuple[RampStep, ...] = ()
    overrides: dict[str, str] = Field(default_factory=dict)
    """Viewer → arm. Kept as pseudonyms; such units are not counted."""
    price_in: float = Field(default=0.0, ge=0)
    """Per million prompt tokens, in the shop's currency."""
    price_out: float = Field(default=0.0, ge=0)
    """Per million generated tokens."""

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentSpec:
        names = [self.control_name, *(arm.name for arm in self.arms), *(one.name for one in self.shadows)]
        if len(set(names)) != len(names):
            raise ValueError("arms need names of their own")
        if sum(arm.weight for arm in self.arms) >= 100 + 1e-9 or sum(arm.weight for arm in self.arms) > 99:
            raise ValueError("the arms leave the control nothing; it needs 1 % at least")
        if [step.percent for step in self.ramp] != sorted(step.percent for step in self.ramp):
            raise ValueError("a ramp never goes down")
        unknown = set(self.overrides.values()) - set(names[: 1 + len(self.arms)])
        if unknown:
            raise ValueError(f"override to unknown arm {sorted(unknown)[0]!r}")
        if self.metric == "cost_per_reply" and not (self.price_in or self.price_out):
            raise ValueError("cost per reply needs price_in or price_out")
        return self

    @property
    def exclusion(self) -> str:
        """Name of the exclusion group."""
        return self.group or self.deployment

    @property
    def better_is(self) -> Direction:
        """Which way the deciding metric is better."""
        return self.better or BETTER[self.metric]


class Stage(_Model):
    """A stretch with fixed weights."""

    began: float
    """Seconds since the epoch."""
    percent: float
    """Of the arms' weights."""


class Experiment(_Model):
    """An experiment and where it stands."""

    spec: ExperimentSpec
    state: Literal["draft", "running", "stopped"] = "draft"
    created: float
    arms: tuple[ArmPlan, ...] = ()
    """Resolved at the start; the first is the control."""
    shadows: tuple[ArmPlan, ...] = ()
    low: float = 0.0
    """Where the experiment's part of its exclusion group begins, in percent."""
    stages: tuple[Stage, ...] = ()
    stopped: float | None = None
    reason: str = ""
    """Why it was stopped."""
    keep: str = ""
    """Arm that was kept at the stop: what its rollout begins from; "" is none."""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.spec.name

    @property
    def weights(self) -> tuple[float, ...]:
        """Percent by arm at the present stage, the control first."""
        scale = self.stages[-1].percent / 100 if self.stages else 0.0
        return self.weights_at(scale * 100)

    def weights_at(self, percent: float) -> tuple[float, ...]:
        """Percent by arm when the ramp is at `percent`."""
        rest = tuple(arm.weight * percent / 100 for arm in self.spec.arms)
        return (100 - sum(rest), *rest)


def read_experiment(raw: object) -> ExperimentSpec:
    """The spec in a mapping. SettingsError that lists every problem."""
    try:
        return ExperimentSpec.model_validate(raw)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        ]
        raise SettingsError(
            "; ".join(lines), place="experiment", cure="see docs/experiments.md for the fields"
        ) from None
