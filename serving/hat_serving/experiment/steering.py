"""How a deployment's traffic is steered: arms beside the stable one, their weights, what was taken back. Pure.

    add ─▶ weigh ─▶ … ─▶ promote     the arm becomes the stable one, for new conversations (urgent: at the next message)
                    └──▶ abort       everyone on the arm moves at the next message; `remove` then forgets it

Always holds: weights of the arms leave the stable one what is left of 100; an aborted arm never gets weight again; only an
arm without traffic is removed and only one with all traffic is promoted; a new set of arms draws its units anew (another
salt), so that no viewer is always the first. Every change gives a new revision, an unchanged wish none.
Not here: where it is kept (gateway.control), who may change it (gateway.admin), which arm a unit gets (assignment).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hat_harness.digest import digest_json
from hat_serving.errors import SteeringError
from hat_serving.experiment.model import ArmPlan, Experiment

KEPT = 16
"""Former arms that are remembered, so that running conversations end where they began."""


class Pinned(BaseModel):
    """The stable arm since a promotion, until the source's own moves on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    harness: str
    digest: str
    release: str
    engine: str = ""
    urgent: bool = False
    over: str = ""
    """Digest that the source gave when the promotion happened."""


class Former(BaseModel):
    """An arm that no new conversation gets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: str
    digest: str
    release: str
    engine: str = ""
    state: Literal["replaced", "withdrawn"]
    """`replaced`: running conversations end on it; `withdrawn`: they leave at their next message."""


class Steering(BaseModel):
    """One deployment's steering. The stable arm is the source's, or `pinned`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    revision: int = 0
    """Counts changes; a replica reports the revision that it obeys."""
    epoch: int = 0
    """Counts sets of arms; part of the salt."""
    split: int = 0
    """Counts changes of the weights; exposures are counted by it."""
    pinned: Pinned | None = None
    arms: tuple[ArmPlan, ...] = ()
    former: tuple[Former, ...] = ()
    overrides: dict[str, str] = Field(default_factory=dict)
    """Unit (a pseudonym) → arm."""
    experiments: tuple[Experiment, ...] = ()
    """All that were created, the oldest first."""

    @property
    def salt(self) -> str:
        """Salt of the assignment."""
        return f"{self.name}#{self.epoch}"

    @property
    def running(self) -> tuple[Experiment, ...]:
        """Experiments that assign units now."""
        return tuple(one for one in self.experiments if one.state == "running")

    def arm(self, name: str) -> ArmPlan:
        """The arm of that name."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise SteeringError(
            f"no arm called {name[:64]!r}",
            place=self.name,
            cure=f"arms: {', '.join(a.name for a in self.arms) or 'none'}",
        )


def release_of(digest: str, engine: str) -> str:
    """The release of an arm that names none: harness and engine."""
    return digest_json({"engine": engine, "harness": digest})


def add(now: Steering, arm: ArmPlan, control: str) -> Steering:
    """With another arm, without traffic. Unchanged when the same one is there; another one under its name is refused."""
    if arm.name == control:
        raise SteeringError(f"{control!r} is the stable arm", place=now.name, cure="choose another name")
    arm = arm.model_copy(update={"weight": 0.0, "release": arm.release or release_of(arm.digest, arm.engine)})
    for known in now.arms:
        if known.name == arm.name:
            if known.identity == arm.identity and known.engine == arm.engine and not known.aborted:
                return now
            raise SteeringError(
                f"arm {arm.name} serves something else", place=now.name, cure="remove it first, or choose another name"
            )
    if now.running:
        raise SteeringError(
            f"experiment {now.running[0].name} is running", place=now.name, cure="stop it first, or add the arm to it"
        )
    epoch = now.epoch if now.arms else now.epoch + 1
    # A release that was taken back once may be tried again.
    former = tuple(one for one in now.former if (one.digest, one.release) != arm.identity)
    return _changed(now, epoch=epoch, split=now.split + 1, arms=(*now.arms, arm), former=former)


def weigh(now: Steering, weights: dict[str, float]) -> Steering:
    """With these percents for the named arms; the others keep theirs, the stable arm gets the rest."""
    for name, weight in weights.items():
        arm = now.arm(name)
        if not 0 <= weight <= 100:
            raise SteeringError(f"{weight:g} is no percent", place=f"{now.name}/{name}", cure="0 to 100")
        if arm.aborted and weight:
            raise SteeringError(f"arm {name} was aborted", place=now.name, cure="remove it and add it anew")
    arms = tuple(arm.model_copy(update={"weight": float(weights.get(arm.name, arm.weight))}) for arm in now.arms)
    total = sum(arm.weight for arm in arms)
    if total > 100 + 1e-9:
        raise SteeringError(f"the arms' weights sum to {total:g}", place=now.name, cure="at most 100")
    return now if arms == now.arms else _changed(now, split=now.split + 1, arms=arms)


def abort(now: Steering, name: str) -> Steering:
    """The arm loses its units: new conversations at once, running ones at their next message."""
    arm = now.arm(name)
    if arm.aborted:
        return now
    gone = arm.model_copy(update={"weight": 0.0, "aborted": True})
    arms = tuple(gone if one.name == name else one for one in now.arms)
    overrides = {unit: to for unit, to in now.overrides.items() if to != name}
    return _changed(
        now, split=now.split + 1, arms=arms, overrides=overrides, former=_former(now, _as_former(arm, "withdrawn"))
    )


def remove(now: Steering, name: str) -> Steering:
    """Without the arm, which must have no traffic; what still runs on it leaves at its next message."""
    if all(arm.name != name for arm in now.arms):
        return now
    arm = now.arm(name)
    if arm.weight:
        raise SteeringError(
            f"arm {name} still gets {arm.weight:g} % of the units",
            place=now.name,
            cure="abort it, or set its weight to 0",
        )
    overrides = {unit: to for unit, to in now.overrides.items() if to != name}
    arms = tuple(one for one in now.arms if one.name != name)
    return _changed(now, arms=arms, overrides=overrides, former=_former(now, _as_former(arm, "withdrawn")))


def promote(now: Steering, name: str, stable: Former, source: str, *, urgent: bool = False) -> Steering:
    """The arm, which has all units, becomes the stable one. `stable` is the one until now, `source` the source's digest.

    Running conversations end on the release that they began with; with `urgent` they change at their next message.
    """
    pinned = now.pinned
    if all(arm.name != name for arm in now.arms) and pinned is not None:
        return now
    arm = now.arm(name)
    if arm.aborted or arm.weight < 100:
        raise SteeringError(
            f"arm {name} has {arm.weight:g} % of the units", place=now.name, cure="only an arm that has all is promoted"
        )
    rest = [one for one in now.arms if one.name != name]
    made = Pinned(
        harness=arm.harness, digest=arm.digest, release=arm.release, engine=arm.engine, urgent=urgent, over=source
    )
    former = _former(now, stable, *(_as_former(one, "withdrawn") for one in rest))
    former = tuple(one for one in former if (one.digest, one.release) != arm.identity)
    return _changed(now, split=now.split + 1, pinned=made, arms=(), overrides={}, former=former)


def pin_unit(now: Steering, unit: str, arm: str, control: str) -> Steering:
    """`unit` always gets `arm`; "" lets the hash decide again."""
    if arm and arm != control and now.arm(arm).aborted:
        raise SteeringError(f"arm {arm} was aborted", place=now.name)
    overrides = {key: value for key, value in now.overrides.items() if key != unit}
    if arm:
        overrides[unit] = arm
    return now if overrides == now.overrides else _changed(now, overrides=overrides)


def _changed(now: Steering, **update: object) -> Steering:
    return now.model_copy(update={**update, "revision": now.revision + 1})


def _as_former(arm: ArmPlan, state: Literal["replaced", "withdrawn"]) -> Former:
    return Former(arm=arm.name, digest=arm.digest, release=arm.release, engine=arm.engine, state=state)


def _former(now: Steering, *added: Former) -> tuple[Former, ...]:
    fresh = {(one.digest, one.release) for one in added}
    return (*(one for one in now.former if (one.digest, one.release) not in fresh), *added)[-KEPT:]
