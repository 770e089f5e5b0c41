"""A source of deployments with the shared steering laid over it: arms, weights, promotions, what was taken back.

Always holds: with no steering the source's answer passes unchanged; an arm whose harness cannot be loaded gets no traffic
here, and the replica says so instead of acknowledging. Not here: where harnesses come from (live), the database (control).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from hat_harness.errors import PlatformError
from hat_harness.spec import Harness
from hat_serving.experiment.assignment import SLOTS, Arm, Split, Trial
from hat_serving.experiment.lifecycle import part
from hat_serving.experiment.model import Experiment
from hat_serving.experiment.steering import Former, Steering
from hat_serving.gateway.live import Deployment, LiveArm, Source, live_arm

log = logging.getLogger("hatstack.gateway")


class Steers(Protocol):
    """Where steering is followed (gateway.control.Control)."""

    def steering(self, name: str) -> Steering | None:
        """The steering to obey now."""

    def troubled(self, name: str, why: str) -> None:
        """Why it cannot be obeyed; "" when it can."""

    def before_obeying(self, prepare: Callable[[str], None]) -> None:
        """What to call before a steering is acknowledged."""


class SteeredSource:
    """`base` with `control`'s steering."""

    def __init__(self, base: Source, control: Steers) -> None:
        self._base = base
        self._control = control
        self._made: dict[str, tuple[LiveArm, int, Deployment]] = {}
        self._arms: dict[tuple[str, str, str, str, bool], LiveArm] = {}
        control.before_obeying(self._prepare)

    def deployment(self, name: str) -> Deployment:
        """What `name` serves now."""
        base = self._base.deployment(name)
        steering = self._control.steering(name)
        if steering is None:
            return base
        own = base.arms[base.split.arms[0].name]
        kept = self._made.get(name)
        if kept is not None and kept[0] is own and kept[1] == steering.revision:
            return kept[2]
        made, trouble = self._steer(base, own, steering)
        self._control.troubled(name, trouble)
        self._made[name] = (own, steering.revision, made)
        return made

    def _prepare(self, name: str) -> None:
        """Make the steering of `name` anew, also where it had trouble before."""
        self._made.pop(name, None)
        try:
            self.deployment(name)
        except PlatformError as error:
            self._control.troubled(name, error.message)

    def known(self, name: str) -> bool:
        """Whether `deployment` answers at once."""
        return self._base.known(name)

    def names(self) -> list[str]:
        """What the source serves."""
        return self._base.names()

    def harness(self, digest: str) -> Harness:
        """A harness that a running conversation is on."""
        return self._base.harness(digest)

    def resolve(self, reference: str, name: str) -> tuple[str, Harness]:
        """(`NAME@digest`, harness) of a reference."""
        return self._base.resolve(reference, name)

    def stable(self, name: str) -> tuple[LiveArm, str]:
        """(the stable arm, the digest that the source itself gives)."""
        base = self._base.deployment(name)
        own = base.arms[base.split.arms[0].name]
        now = self.deployment(name)
        return now.arms[now.split.arms[0].name], own.digest

    def _steer(self, base: Deployment, own: LiveArm, steering: Steering) -> tuple[Deployment, str]:
        control, trouble = own, list[str]()
        pinned = steering.pinned
        # Where the source's own pointer has moved since the promotion, it has the word again.
        if pinned is not None and own.digest in (pinned.over, pinned.digest):
            try:
                key = (pinned.harness, pinned.release, pinned.engine, own.name, pinned.urgent)
                control = self._arm(*key, steering.name)
            except PlatformError as error:
                trouble.append(f"{own.name}: {error.message}")
        arms = {control.name: control}
        tried = [arm for one in steering.running for arm in (*one.arms, *one.shadows)]
        for plan in (*steering.arms, *tried):
            try:
                arms[plan.name] = self._arm(plan.harness, plan.release, plan.engine, plan.name, False, steering.name)
            except PlatformError as error:
                trouble.append(f"{plan.name}: {error.message}")
        rest = 100 - sum(arm.weight for arm in steering.arms)
        split = Split(
            steering.salt,
            (Arm(control.name, rest), *(Arm(arm.name, arm.weight) for arm in steering.arms)),
            {unit: arm for unit, arm in steering.overrides.items() if arm in arms},
        )
        for message in trouble:
            log.warning("%s: arm left out: %s", steering.name, message)
        made = Deployment(
            base.name,
            split,
            arms,
            frozenset(arm.name for arm in steering.arms if arm.aborted),
            former={(one.digest, one.release): one for one in steering.former},
            revision=steering.revision,
            exposes=steering.split if steering.arms else 0,
            trials=tuple(trial(one) for one in steering.running),
        )
        return made, "; ".join(trouble)

    def _arm(self, reference: str, release: str, engine: str, name: str, urgent: bool, deployment: str) -> LiveArm:
        key = (reference, release, engine, name, urgent)
        if key not in self._arms:
            _, harness = self._base.resolve(reference, deployment)
            self._arms[key] = live_arm(name, harness, release=release, engine=engine, urgent=urgent)
        return self._arms[key]


def as_former(arm: LiveArm) -> Former:
    """A stable arm that is being replaced."""
    return Former(arm=arm.name, digest=arm.digest, release=arm.release, engine=arm.engine, state="replaced")


def trial(one: Experiment) -> Trial:
    """A running experiment for assignment."""
    arms = tuple(Arm(arm.name, weight) for arm, weight in zip(one.arms, one.weights, strict=True))
    low, high = part(one)
    return Trial(
        one.name,
        one.spec.exclusion,
        round(low * SLOTS / 100),
        round(high * SLOTS / 100),
        Split(f"experiment:{one.name}", arms, one.spec.overrides),
        one.spec.unit,
        tuple((shadow.name, shadow.percent) for shadow in one.spec.shadows),
    )
