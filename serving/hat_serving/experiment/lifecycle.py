"""An experiment's life as changes of a deployment's steering: create, start, next stage, stop. Pure.

Always holds: at the start every arm is resolved to a digest, the control too, so that nothing changes under the comparison;
experiments of one deployment are in one exclusion group, and parts of a group never overlap; a ramp only goes up and is
recorded stage by stage; at the stop running conversations of all arms leave at their next message, but those of an arm that
is kept. Not here: which harness a reference means (the caller resolves), what came out (analysis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hat_serving.errors import SteeringError
from hat_serving.experiment.model import ArmPlan, Experiment, ExperimentSpec, Stage
from hat_serving.experiment.steering import KEPT as FORMER
from hat_serving.experiment.steering import Former, Steering, release_of

BASELINE = "react-baseline"
"""Harness of the control where an arm is the stable release itself."""
KEPT = 50
"""Experiments that a deployment remembers."""
Resolve = Callable[[str], tuple[str, str]]
"""Reference → (`NAME@sha256:…`, digest)."""


def find(now: Steering, name: str) -> Experiment:
    """The experiment of that name. SteeringError when there is none."""
    for one in now.experiments:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in now.experiments) or "none"
    raise SteeringError(f"no experiment called {name[:64]!r}", place=now.name, cure=f"experiments: {known}")


def create(now: Steering, spec: ExperimentSpec, at: float) -> Steering:
    """With a draft. Unchanged when the same one is there; another one under its name is refused."""
    for known in now.experiments:
        if known.name == spec.name:
            if known.spec == spec:
                return now
            raise SteeringError(
                f"experiment {spec.name} exists with another plan", place=now.name, cure="choose another name"
            )
    kept = [one for one in now.experiments if one.state == "running"]
    rest = [one for one in now.experiments if one.state != "running"][-(KEPT - len(kept) - 1) :]
    ordered = tuple(one for one in now.experiments if one in kept or one in rest)
    return _with(now, (*ordered, Experiment(spec=spec, created=at)))


def start(
    now: Steering, name: str, resolve: Resolve, stable: ArmPlan, taken: Sequence[tuple[float, float]], at: float
) -> Steering:
    """Running, at the first stage of its ramp. `taken`: parts of its exclusion group that others hold."""
    one = find(now, name)
    if one.state != "draft":
        if one.state == "running":
            return now
        raise SteeringError(f"experiment {name} is over", place=now.name, cure="create another one")
    if now.arms:
        raise SteeringError("a rollout is in progress", place=now.name, cure="finish or abort it first")
    spec = one.spec
    for other in now.running:
        if other.spec.exclusion != spec.exclusion:
            raise SteeringError(
                f"experiment {other.name} of this deployment is in group {other.spec.exclusion!r}",
                place=f"{name}.group",
                cure="experiments of one deployment exclude each other: use its group",
            )
        shared = {arm.name for arm in (*other.arms, *other.shadows)} & _names(spec)
        if shared:
            raise SteeringError(
                f"experiment {other.name} has an arm {sorted(shared)[0]!r} too",
                place=name,
                cure="name arms differently",
            )
    if stable.name in _names(spec):
        raise SteeringError(f"{stable.name!r} is the stable arm", place=name, cure="choose another name")
    arms = tuple(_plan(arm.name, arm.harness, arm.engine, arm.release, resolve, stable) for arm in spec.arms)
    shadows = tuple(_plan(arm.name, arm.harness, arm.engine, arm.release, resolve, stable) for arm in spec.shadows)
    control = _control(spec, arms, resolve, stable)
    first = spec.ramp[0].percent if spec.ramp else 100.0
    begun = one.model_copy(
        update={
            "state": "running",
            "arms": (control, *arms),
            "shadows": shadows,
            "low": _gap(taken, spec),
            "stages": (Stage(began=at, percent=first),),
        }
    )
    return _replaced(now, begun)


def advance(now: Steering, name: str, at: float) -> Steering:
    """The next stage of the ramp, when the present one was held long enough; unchanged otherwise."""
    one = find(now, name)
    steps = one.spec.ramp
    index = len(one.stages) - 1
    if one.state != "running" or index + 1 >= len(steps) or at - one.stages[-1].began < steps[index].hold_s:
        return now
    stages = (*one.stages, Stage(began=at, percent=steps[index + 1].percent))
    return _replaced(now, one.model_copy(update={"stages": stages}))


def stop(now: Steering, name: str, reason: str, at: float, keep: str = "") -> Steering:
    """Stopped. `keep` names an arm whose running conversations end on it; all others leave at their next message."""
    one = find(now, name)
    if one.state == "stopped":
        return now
    if keep and keep not in {arm.name for arm in one.arms}:
        raise SteeringError(f"no arm called {keep!r}", place=name)
    over = one.model_copy(update={"state": "stopped", "stopped": at, "reason": reason, "keep": keep})
    left = tuple(
        Former(
            arm=arm.name,
            digest=arm.digest,
            release=arm.release,
            engine=arm.engine,
            state="replaced" if arm.name == keep else "withdrawn",
        )
        for arm in one.arms
    )
    fresh = {(entry.digest, entry.release) for entry in left}
    former = (*(entry for entry in now.former if (entry.digest, entry.release) not in fresh), *left)[-FORMER:]
    return _replaced(now.model_copy(update={"former": former}), over)


def part(one: Experiment) -> tuple[float, float]:
    """[low, high) percent of the exclusion group that a running experiment holds."""
    return one.low, one.low + one.spec.share


def _control(spec: ExperimentSpec, arms: Sequence[ArmPlan], resolve: Resolve, stable: ArmPlan) -> ArmPlan:
    """The control: what is named, else what stands now, else (an arm is that one already) the plain baseline."""
    wanted = spec.control
    live = any(arm.digest == stable.digest and arm.engine == stable.engine for arm in arms)
    if not wanted and live:
        wanted = BASELINE
    if wanted:
        return _plan(spec.control_name, wanted, "", "", resolve, stable)
    return stable.model_copy(update={"name": spec.control_name})


def _plan(name: str, harness: str, engine: str, release: str, resolve: Resolve, stable: ArmPlan) -> ArmPlan:
    reference, digest = resolve(harness) if harness else (stable.harness, stable.digest)
    return ArmPlan(
        name=name, harness=reference, digest=digest, engine=engine, release=release or release_of(digest, engine)
    )


def _gap(taken: Sequence[tuple[float, float]], spec: ExperimentSpec) -> float:
    """The first free part of the group that is wide enough."""
    at = 0.0
    for low, high in sorted(taken):
        if low - at >= spec.share - 1e-9:
            break
        at = max(at, high)
    if at + spec.share > 100 + 1e-9:
        free = 100 - sum(high - low for low, high in taken)
        raise SteeringError(
            f"{spec.share:g} % of group {spec.exclusion!r} are not free: {free:g} % are left",
            place=spec.name,
            cure="take a smaller share, or stop another experiment of the group",
        )
    return at


def _names(spec: ExperimentSpec) -> set[str]:
    return {spec.control_name, *(arm.name for arm in spec.arms), *(arm.name for arm in spec.shadows)}


def _replaced(now: Steering, changed: Experiment) -> Steering:
    return _with(now, tuple(changed if one.name == changed.name else one for one in now.experiments))


def _with(now: Steering, experiments: tuple[Experiment, ...]) -> Steering:
    return now.model_copy(update={"experiments": experiments, "revision": now.revision + 1})
