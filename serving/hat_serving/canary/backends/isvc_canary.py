"""KServe's own canary: `spec.canary[].trafficPercent`, which KServe 0.21 and newer turns into route weights.

What is in force is read from the HTTPRoute. `status.canaryStatuses` repeats the wish: on 0.20 it says 10 while the
canary gets nothing, so a rollout there would never start its clock, and preflight says so before it begins.
"""

from __future__ import annotations

from hat_serving.canary.backends import Reading
from hat_serving.canary.backends.routes import RouteSplit
from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import IsvcCanaryTarget
from hat_serving.canary.workload import Workload


class IsvcCanary:
    """Backend `isvc-canary`."""

    settle = 1.0

    def __init__(self, kube: Objects, namespace: str, target: IsvcCanaryTarget) -> None:
        self._kube, self._namespace = kube, namespace
        self._workload = Workload(kube, namespace, target.inference_service, target.canary)

    def read(self) -> Reading:
        """From the route, its status, and the canary's Deployment."""
        workload = self._workload
        found = workload.service()
        if found is None:
            return Reading(0, retired=True, note=f"InferenceService {workload.name} does not exist")
        if workload.is_stable(found):
            rolled_out, missing = workload.stable_rolled_out(found)
            done = workload.entry(found) is None and rolled_out and workload.settled(found)
            return Reading(100, ready=True, promoted=done, note=missing)
        percent, note = self._split(found).read()
        ready, missing = workload.available()
        return Reading(percent, ready, retired=percent == 0 and workload.gone(), note=note or missing)

    def prepare(self) -> None:
        """Adds the canary entry at 0 %."""
        self._workload.prepare()

    def set_weight(self, percent: int) -> None:
        """The entry's trafficPercent; KServe writes the route. At 0 without an entry there is nothing to do."""
        found = self._workload.service()
        if percent == 0 and (found is None or self._workload.entry(found) is None):
            return
        self._workload.set_percent(percent)

    def promote(self) -> None:
        """By name, or by rewriting the stable predictor and dropping the entry once it has rolled out."""
        workload = self._workload
        found = workload.service()
        if found is not None and workload.is_stable(found) and workload.entry(found) is not None:
            if workload.stable_rolled_out(found)[0]:
                workload.drop_entry()
            return
        workload.promote()

    def retire(self) -> None:
        """Drops the entry; refused while the canary gets traffic."""
        found = self._workload.service()
        if found is None:
            return
        if self._split(found).read()[0] != 0:
            raise BackendError("the canary still gets traffic")
        self._workload.drop_entry()
        self._workload.tidy()

    def _split(self, found: Manifest) -> RouteSplit:
        workload = self._workload
        stable = workload.stable_service(found)
        return RouteSplit(self._kube, self._namespace, workload.name, stable, workload.canary_service)
