"""Experiments of one gateway: created, started, looked at and stopped over the shared steering; ramps go on by themselves.

Always holds: what a page, the command line and the automatic stop see is the same analysis; a look at a running experiment
is written down at most once a minute, so that the p-value of later looks never rises; of several replicas one advances a
ramp or stops an experiment. Blocking; call it from a thread. Not here: HTTP (experiments), statistics (experiment.analysis).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, Text, func, insert, select
from sqlalchemy.exc import IntegrityError

from hat_harness.digest import harness_digest
from hat_harness.errors import PlatformError
from hat_registry.store.database import Database
from hat_serving.errors import RequestError, SteeringError
from hat_serving.experiment import expiry, lifecycle
from hat_serving.experiment.model import ArmPlan, Experiment, ExperimentSpec
from hat_serving.experiment.steering import Steering
from hat_serving.gateway.control import Control
from hat_serving.gateway.steered import SteeredSource
from hat_serving.gateway.upstream import Engines

log = logging.getLogger("hatstack.gateway")
metadata = MetaData()
look = Table(
    "experiment_look",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("experiment", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
)
"""`body`: JSON of arm → [delta, low, high, p, units]."""
LOOK_S = 60.0
JUDGED_S = 30.0
"""How often a running experiment is looked at for harm, at most."""
SHOWN_LOOKS = 500


class Trials:
    """The experiments that one gateway's clients take part in."""

    def __init__(
        self,
        control: Control,
        source: SteeredSource,
        database: Database,
        *,
        pseudonym: Callable[[str], str],
        engines: Engines,
        workspace: str = "default",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._control = control
        self._source = source
        self._database = database
        self._pseudonym = pseudonym
        self._engines = engines
        self._workspace = workspace
        self._clock = clock
        self._due: dict[str, float] = {}
        with database.write() as tx:
            metadata.create_all(tx)
            expiry.metadata.create_all(tx)

    def listing(self) -> list[dict[str, Any]]:
        """All experiments, the newest first, without results."""
        found = [one for steering in self._control.all() for one in steering.experiments]
        return [_told(one) for one in sorted(found, key=lambda one: one.created, reverse=True)]

    def create(self, spec: ExperimentSpec, actor: str) -> dict[str, Any]:
        """A draft; its overrides are kept as pseudonyms."""
        self._source.deployment(spec.deployment)
        asked = {arm.name: arm.engine for arm in spec.arms} | {arm.name: arm.engine for arm in spec.shadows}
        for name, engine in asked.items():
            if engine not in self._engines.names:
                raise RequestError(f"no engine called {engine!r}", place=f"arms.{name}.engine")
        known = {self._pseudonym(viewer): arm for viewer, arm in spec.overrides.items()}
        kept = spec.model_copy(update={"overrides": known})
        for steering in self._control.all():
            if steering.name != spec.deployment and any(one.name == spec.name for one in steering.experiments):
                raise SteeringError(f"experiment {spec.name} exists for {steering.name}", cure="choose another name")

        def made(now: Steering) -> Steering:
            return lifecycle.create(now, kept, self._clock())

        self._control.change(spec.deployment, actor, "experiment", {"name": spec.name}, made)
        return self.show(spec.name, results=False)

    def start(self, name: str, actor: str) -> dict[str, Any]:
        """Exposes units from now on."""
        deployment = self._of(name).spec.deployment
        arm, _ = self._source.stable(deployment)
        stable = ArmPlan(
            name=arm.name,
            harness=f"{arm.harness.name}@{arm.digest}",
            digest=arm.digest,
            release=arm.release,
            engine=arm.engine,
        )

        def resolve(reference: str) -> tuple[str, str]:
            found, harness = self._source.resolve(reference, deployment)
            return found, harness_digest(harness)

        def made(now: Steering) -> Steering:
            return lifecycle.start(now, name, resolve, stable, self._taken(now, name), self._clock())

        self._control.change(deployment, actor, "experiment-start", {"name": name}, made)
        return self.show(name, results=False)

    def stop(self, name: str, actor: str, reason: str, keep: str = "") -> dict[str, Any]:
        """Ends it; see lifecycle.stop."""
        deployment = self._of(name).spec.deployment
        detail = {"name": name, "reason": reason, "keep": keep}
        at = self._clock()
        self._control.change(
            deployment, actor, "experiment-stop", detail, lambda now: lifecycle.stop(now, name, reason, at, keep)
        )
        return self.show(name)

    def show(self, name: str, *, results: bool = True) -> dict[str, Any]:
        """One experiment; with results, unless it is a draft."""
        one = self._of(name)
        told = _told(one)
        if results and one.state != "draft":
            told["result"], told["looks"] = self._result(one)
        return told

    def tend(self) -> None:
        """What goes on by itself: ramps advance, and an experiment that does harm is stopped."""
        for steering in self._control.all():
            for one in steering.running:
                try:
                    self._tend(steering.name, one)
                except (PlatformError, IntegrityError) as error:
                    log.warning("experiment %s: %s", one.name, error)

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _tend(self, deployment: str, one: Experiment) -> None:
        from hat_serving.experiment import analysis

        at = self._clock()
        onward = bool(lifecycle.advance(Steering(name=deployment, experiments=(one,)), one.name, at).revision)
        if not onward and time.monotonic() < self._due.get(one.name, 0.0):
            return
        began = time.monotonic()
        result, _ = self._result(one)
        # Many units take seconds; looking then takes a fiftieth of the time at most.
        self._due[one.name] = time.monotonic() + max(JUDGED_S, 50 * (time.monotonic() - began))
        why = analysis.harmed(result)
        if why and one.spec.on_harm == "stop":
            self.stop(one.name, "gateway", why)
        elif onward:
            detail = {"name": one.name, "stage": len(one.stages)}

            def made(now: Steering) -> Steering:
                return lifecycle.advance(now, one.name, at)

            self._control.change(deployment, "gateway", "experiment-stage", detail, made)

    def _result(self, one: Experiment) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        from hat_serving.experiment import analysis, observed

        with self._database.read() as tx:
            earlier = looks(tx, self._workspace, one.name)
            total = expiry.kept(tx, self._workspace, one) if one.state == "stopped" else None
            if total is not None:
                return total, earlier[-SHOWN_LOOKS:]
            found = observed.units(tx, self._workspace, one)
        result = analysis.analyse(one, found, smallest(earlier))
        now = self._clock()
        if one.state == "running" and found and (not earlier or now - earlier[-1]["at"] >= LOOK_S):
            arms = {
                row["arm"]: [row["primary"][key] for key in ("delta", "low", "high", "p", "n")]
                for row in result["contrasts"]
            }
            earlier.append({"at": now, "arms": arms})
            self._keep(one.name, len(earlier), now, arms)
        return result, earlier[-SHOWN_LOOKS:]

    def _keep(self, name: str, number: int, at: float, arms: dict[str, Any]) -> None:
        """Another replica may have written the same look: then this one is not needed."""
        try:
            with self._database.write() as tx:
                here = (look.c.workspace == self._workspace, look.c.experiment == name)
                last = tx.execute(select(func.max(look.c.number)).where(*here)).scalar() or 0
                if last < number:
                    row = {"workspace": self._workspace, "experiment": name, "number": number}
                    tx.execute(insert(look).values(**row, at=at, body=json.dumps(arms)))
        except IntegrityError:
            log.debug("look %s of %s was written elsewhere", number, name)

    def _of(self, name: str) -> Experiment:
        for steering in self._control.all():
            for one in steering.experiments:
                if one.name == name:
                    return one
        raise RequestError(f"no experiment called {name[:64]!r}", place="experiment")

    def _taken(self, now: Steering, name: str) -> list[tuple[float, float]]:
        """Parts of the exclusion group of `name` that other running experiments hold, in any deployment."""
        group = lifecycle.find(now, name).spec.exclusion
        others = [one for steering in self._control.all() if steering.name != now.name for one in steering.running]
        return [lifecycle.part(one) for one in (*others, *now.running) if one.spec.exclusion == group]


def looks(tx: Connection, workspace: str, name: str) -> list[dict[str, Any]]:
    """What was seen of an experiment so far, in order."""
    here = (look.c.workspace == workspace, look.c.experiment == name)
    rows = tx.execute(select(look.c.at, look.c.body).where(*here).order_by(look.c.number))
    return [{"at": row.at, "arms": json.loads(row.body)} for row in rows]


def smallest(earlier: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Arm → smallest p of earlier looks."""
    found: dict[str, float] = {}
    for entry in earlier:
        for arm, value in entry["arms"].items():
            found[arm] = min(found.get(arm, 1.0), value[3])
    return found


def outcome(tx: Connection, workspace: str, one: Experiment) -> dict[str, Any]:
    """The result of an experiment whose units are still here."""
    from hat_serving.experiment import analysis, observed

    earlier = smallest(looks(tx, workspace, one.name))
    return analysis.analyse(one, observed.units(tx, workspace, one), earlier)


def _told(one: Experiment) -> dict[str, Any]:
    arms: list[dict[str, Any]]
    if one.arms:
        arms = [
            {"name": arm.name, "weight": weight, "harness": arm.digest, "release": arm.release, "engine": arm.engine}
            for arm, weight in zip(one.arms, one.weights, strict=True)
        ]
    else:
        planned = (
            (one.spec.control_name, one.spec.control, ""),
            *((a.name, a.harness, a.engine) for a in one.spec.arms),
        )
        arms = [
            {"name": name, "weight": weight, "harness": harness, "release": "", "engine": engine}
            for (name, harness, engine), weight in zip(planned, one.weights_at(100), strict=True)
        ]
    spec = one.spec.model_dump(mode="json", exclude={"overrides"})
    return {
        "name": one.name,
        "state": one.state,
        "created": one.created,
        "stages": [stage.model_dump() for stage in one.stages],
        "stopped": one.stopped,
        "reason": one.reason,
        "keep": one.keep,
        "arms": arms,
        "overrides": len(one.spec.overrides),
        "spec": spec,
    }
