"""What a canary rollout is: its target, its steps, and the metrics that gate it.

The custom resource `CanaryRollout` (hatstack.dev/v1alpha1) carries exactly this in `spec`, in camelCase;
charts/hatstack holds its CRD, and a test keeps the two alike. Durations are written as Kubernetes does (`90s`, `10m`,
`1h30m`). Not here: state, decisions.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from hat_serving.canary.errors import InvalidRolloutError

GROUP = "hatstack.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "CanaryRollout"
RESUME_ANNOTATION = f"{GROUP}/resume"
"""A new value of this annotation resumes a paused rollout once."""
DIGEST_ANNOTATION = f"{GROUP}/model-digest"
"""Annotation of a predictor, and so of its pods: the digest that the engine's start compares the weights with."""

_DURATION = re.compile(r"(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_duration(text: str | float) -> float:
    """Seconds of `90s`, `10m`, `1h30m`; a number counts as seconds."""
    if isinstance(text, int | float):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a duration such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(lambda value: f"{value:g}s"),
    Field(ge=0),
    WithJsonSchema(
        {"type": "string", "pattern": r"^([0-9]+h)?([0-9]+m)?([0-9]+(\.[0-9]+)?s)?$", "minLength": 2, "maxLength": 32}
    ),
]
"""Seconds."""
Percent = Annotated[int, Field(ge=0, le=100)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class Model(BaseModel):
    """Base: frozen, camelCase outside, an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Bound(Model):
    """A value is inside when it is at least `at_least` and at most `at_most`."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _one(self) -> Bound:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give atLeast, atMost or both")
        return self

    def holds(self, value: float) -> bool:
        """Whether `value` is inside."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


class Threshold(Model):
    """One number of the canary held against fixed bounds, e.g. a p99 latency or the draft head's acceptance length."""

    query: str = Field(min_length=1)
    """PromQL with one result; `$arm`, `$stable`, `$window`, `$release` and `$baseline` are filled in."""
    success: Bound
    failure: Bound | None = None
    """None: whatever is no success is a failure. Between the two bounds a measurement is inconclusive."""
    sample_query: str | None = None
    """PromQL for how many units stand behind the number; needed when `minimum_sample` is set."""


class Share(Model):
    """A share of both arms compared sequentially: errors, tool errors, met goals, judged wins."""

    events: str = Field(min_length=1)
    """PromQL for how many units had the event, by `$arm`."""
    total: str = Field(min_length=1)
    """PromQL for how many units there were, by `$arm`."""
    better: Literal["lower", "higher"] = "lower"
    margin: float = Field(gt=0, lt=1)
    """Largest harm, as a difference of shares, that is still acceptable."""
    level: float = Field(0.95, gt=0.5, lt=1)
    target_sample: int = Field(2000, ge=10)
    """Units of both arms at which the interval is narrowest."""


class SampleRatio(Model):
    """Whether units arrive in the shares that the steps promise;

    A mismatch means that assignment or logging is broken.
    """

    units: str = Field(min_length=1)
    """PromQL for the number of units, by `$arm`."""
    alpha: float = Field(0.001, gt=0, lt=0.5)


class Judged(Model):
    """A number of the newest evidence about the release in the registry: judged quality, or an evaluation on traces."""

    type: Literal["evaluation", "cost", "loadtest"] = "evaluation"
    path: str = Field(min_length=1)
    """Keys that lead to the number in the evidence's content, with dots: `suites.live.effectiveness`."""
    against: Literal["bound", "baseline"] = "bound"
    """`baseline`: the difference to the same number of `baseline` is held against the bounds."""
    success: Bound
    failure: Bound | None = None


class Metric(Model):
    """One gate. Exactly one of `threshold`, `share`, `sample_ratio` and `evidence` says what is measured."""

    name: Name
    evidence: Judged | None = None
    threshold: Threshold | None = None
    share: Share | None = None
    sample_ratio: SampleRatio | None = None
    interval: Duration = 60.0
    """Seconds between two measurements."""
    count: int = Field(1, ge=1)
    """Conclusive measurements that make the metric succeed."""
    minimum_sample: int = Field(0, ge=0)
    """Units of the canary below which nothing is concluded; it waits instead."""
    failure_limit: int = Field(0, ge=0)
    """Failures beyond this abort the rollout."""
    inconclusive_limit: int = Field(0, ge=0)
    """Inconclusive measurements beyond this hold the rollout."""
    consecutive_error_limit: int = Field(4, ge=0)
    """Failed queries in a row beyond this hold the rollout."""

    @model_validator(mode="after")
    def _one_kind(self) -> Metric:
        if sum(kind is not None for kind in (self.threshold, self.share, self.sample_ratio, self.evidence)) != 1:
            raise ValueError(f"metric {self.name}: give exactly one of threshold, share, sampleRatio, evidence")
        if self.threshold and self.minimum_sample and not self.threshold.sample_query:
            raise ValueError(f"metric {self.name}: minimumSample needs threshold.sampleQuery")
        return self


class Pause(Model):
    """Waits `duration` seconds, or until someone resumes."""

    duration: Duration | None = None


class Analysis(Model):
    """Measures the named metrics (all when none is named) until each succeeds; past `deadline` it is inconclusive."""

    metrics: tuple[Name, ...] = Field((), max_length=30)
    deadline: Duration = 3600.0


class Step(Model):
    """Exactly one of the three."""

    set_weight: Percent | None = None
    pause: Pause | None = None
    analysis: Analysis | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        if sum(kind is not None for kind in (self.set_weight, self.pause, self.analysis)) != 1:
            raise ValueError("a step is exactly one of setWeight, pause, analysis")
        return self

    def describe(self) -> str:
        """One short phrase for status and pages."""
        if self.set_weight is not None:
            return f"setWeight {self.set_weight}"
        if self.pause is not None:
            return "pause" if self.pause.duration is None else f"pause {self.pause.duration:g}s"
        return "analysis"


class Background(Model):
    """Metrics that are watched through all steps from `starting_step` on;

    The rollout promotes only when all succeed.
    """

    metrics: tuple[Name, ...] = Field(min_length=1, max_length=30)
    starting_step: int = Field(0, ge=0)


class Canary(Model):
    """The canary's predictor in an InferenceService: the stable one with these changes."""

    name: Name
    storage_uri: str = Field(min_length=1, pattern=r"^[a-z0-9+]+://")
    """Concrete, with no alias in it, so that what was tested is what runs."""
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """Digest of the weights as registered: the canary's pods compare it before they serve. "" compares nothing."""
    replicas: int = Field(1, ge=1)
    patch: dict[str, Any] = Field(default_factory=dict)
    """Merge patch on the stable predictor, e.g. other arguments or another image."""


class HttpRouteTarget(Model):
    """Weights of an HTTPRoute, written by hatstack.

    With an InferenceService the canary is added to it and promoted in it.
    """

    backend: Literal["httproute"] = "httproute"
    inference_service: Name | None = None
    canary: Canary | None = None
    route: Name | None = None
    """Default: the InferenceService's name."""
    stable_service: Name | None = None
    canary_service: Name | None = None

    @model_validator(mode="after")
    def _complete(self) -> HttpRouteTarget:
        if self.inference_service:
            if self.canary is None or self.stable_service or self.canary_service:
                raise ValueError("with inferenceService give canary, and no services")
        elif not (self.route and self.stable_service and self.canary_service):
            raise ValueError("without inferenceService give route, stableService and canaryService")
        return self


class IsvcCanaryTarget(Model):
    """KServe Standard mode's own `spec.canary`; its controller writes the weights (needs KServe 0.21 or newer)."""

    backend: Literal["isvc-canary"] = "isvc-canary"
    inference_service: Name
    canary: Canary


class KnativeTarget(Model):
    """KServe on Knative: `canaryTrafficPercent` between the last two revisions."""

    backend: Literal["knative"] = "knative"
    inference_service: Name
    canary: Canary


class LlmGroupTarget(Model):
    """Two members of one LLMInferenceService route group."""

    backend: Literal["llmisvc"] = "llmisvc"
    stable: Name
    """Member that serves now."""
    canary_member: Name
    """Member that is to take over."""


class GatewayTarget(Model):
    """hatstack's own gateway, which assigns units to arms and keeps them there."""

    backend: Literal["gateway"] = "gateway"
    url: str = Field(pattern=r"^https?://")
    """Administrative address of the gateway."""
    deployment: str = Field(min_length=1, max_length=128)
    """Name under which clients ask for the agent."""
    harness: str = ""
    """The candidate's harness as `NAME`, `NAME@POINTER` or `NAME@sha256:…`; "" keeps the stable one's."""
    engine: str = ""
    """Logical name of the engine that serves the candidate's model; "" keeps the primary."""
    urgent: bool = False
    """At promotion running conversations change over at their next message."""


Target = Annotated[
    HttpRouteTarget | IsvcCanaryTarget | KnativeTarget | LlmGroupTarget | GatewayTarget, Field(discriminator="backend")
]


class Prometheus(Model):
    """Where metrics are asked."""

    url: str = Field(pattern=r"^https?://")
    timeout: Duration = 10.0


class Registry(Model):
    """Where evidence is asked; the controller's own token is sent."""

    url: str = Field(pattern=r"^https?://")
    timeout: Duration = 10.0


class Arms(Model):
    """Values of the label that tells the arms apart in metrics."""

    stable: str = "stable"
    canary: str = "canary"


class RolloutSpec(Model):
    """A rollout from first weight to promotion. Everything but `paused`, `promote` and `abort` is fixed once it exists."""

    release: str = Field(min_length=1)
    """Digest or name of the candidate release."""
    baseline: str = ""
    """Release that it is held against."""
    workspace: Name = "default"
    target: Target
    steps: tuple[Step, ...] = Field(min_length=1, max_length=50)
    metrics: tuple[Metric, ...] = Field((), max_length=30)
    analysis: Background | None = None
    prometheus: Prometheus | None = None
    registry: Registry | None = None
    arms: Arms = Field(default_factory=Arms)
    progress_deadline: Duration = 600.0
    """Seconds until a wanted split or a ready canary must be there; past it the rollout aborts."""
    soak: Duration = 0.0
    """Seconds with all traffic on the canary, the old version still warm, before it is promoted and the old one goes."""
    paused: bool = False
    promote: bool = False
    """Goes on without waiting: every pause is skipped, no measurement is."""
    abort: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> RolloutSpec:
        names = [metric.name for metric in self.metrics]
        if len(set(names)) != len(names):
            raise ValueError("two metrics have the same name")
        asked = [name for step in self.steps if step.analysis for name in step.analysis.metrics]
        asked += list(self.analysis.metrics) if self.analysis else []
        if unknown := sorted(set(asked) - set(names)):
            raise ValueError(f"no metric is called {', '.join(unknown)}")
        if any(step.analysis and not names for step in self.steps):
            raise ValueError("an analysis step needs metrics")
        if any(metric.evidence is None for metric in self.metrics) and self.prometheus is None:
            raise ValueError("metrics need prometheus.url")
        if any(metric.evidence is not None for metric in self.metrics) and self.registry is None:
            raise ValueError("evidence needs registry.url")
        if self.steps[0].set_weight is None:
            raise ValueError("the first step sets a weight")
        weights = [step.set_weight for step in self.steps if step.set_weight is not None]
        if weights != sorted(weights):
            raise ValueError("weights never go down; an abort takes the traffic back")
        return self

    def metric(self, name: str) -> Metric:
        """The metric of that name."""
        return next(metric for metric in self.metrics if metric.name == name)

    def names_of(self, analysis: Analysis) -> tuple[str, ...]:
        """The metrics of an analysis step."""
        return analysis.metrics or tuple(metric.name for metric in self.metrics)

    def weight_at(self, step: int) -> int:
        """The canary's wanted percent during `step`; past the last step it is 100."""
        if step >= len(self.steps):
            return 100
        weights = [entry.set_weight for entry in self.steps[: step + 1] if entry.set_weight is not None]
        return weights[-1]


def read_spec(raw: dict[str, Any]) -> RolloutSpec:
    """The spec of a manifest. Raises InvalidRolloutError that lists every problem."""
    try:
        return RolloutSpec.model_validate(raw)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, entry['loc'])) or 'the whole'}: {entry['msg'].removeprefix('Value error, ')}"
            for entry in error.errors()
        ]
        raise InvalidRolloutError(
            "; ".join(lines), place="spec", cure="see docs/cluster-canary.md for the fields"
        ) from error
