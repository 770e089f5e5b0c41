"""Weights of an HTTPRoute that hatstack writes itself: between two plain Services, or inside an InferenceService.

With an InferenceService this is the backend for KServe 0.20, whose `spec.canary` starts the canary's pods but sends
them no traffic. "Effective" is the share of traffic that gets the new version: once a stable predictor has been
rewritten to the canary's spec, that is all of it, whichever Service it goes through.
"""

from __future__ import annotations

from hat_serving.canary.backends import Reading
from hat_serving.canary.backends.arms import ArmRoute
from hat_serving.canary.backends.routes import RouteSplit
from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import HttpRouteTarget
from hat_serving.canary.workload import Workload


class HttpRoute:
    """Backend `httproute`."""

    settle = 1.0
    """A gateway reports a route a moment before its proxies follow it."""

    def __init__(self, kube: Objects, namespace: str, target: HttpRouteTarget) -> None:
        self._kube, self._namespace, self._target = kube, namespace, target
        self._workload: Workload | None = None
        if target.inference_service and target.canary:
            self._workload = Workload(kube, namespace, target.inference_service, target.canary)

    def read(self) -> Reading:
        """From the route, its status, and the canary's Deployment or endpoints."""
        return self._read_plain() if self._workload is None else self._read_service(self._workload)

    def prepare(self) -> None:
        """Adds the canary to the InferenceService; plain Services are the user's own."""
        if self._workload is not None:
            self._workload.prepare()

    def set_weight(self, percent: int) -> None:
        """Writes the weights into the route."""
        workload = self._workload
        found = None if workload is None else _existing(workload)
        if workload is not None and found is not None and workload.entry(found) is None and percent:
            workload.prepare()
            return
        split = self._split(found)
        if percent:
            self._header(split).write()
        else:
            self._header(split).remove()
        split.write(percent)

    def promote(self) -> None:
        """Plain: the route keeps the canary alone. InferenceService:

        By name or by rewriting, then the route follows.
        """
        workload = self._workload
        self._header(self._split()).remove()
        if workload is None:
            self._split().only_canary()
            return
        found = _existing(workload)
        if workload.is_stable(found) and workload.entry(found) is not None:
            if not workload.stable_rolled_out(found)[0]:
                return
            split = self._split(found)
            if split.read()[0] == 0:
                workload.drop_entry()
            else:
                split.write(0)
            return
        workload.promote()

    def retire(self) -> None:
        """Takes the canary out of the InferenceService; refused while its Service is in the route with a weight."""
        workload = self._workload
        self._header(self._split()).remove()
        if workload is None:
            return
        if self._split(_existing(workload)).read()[0] != 0:
            raise BackendError("the canary still gets traffic")
        workload.drop_entry()
        workload.tidy()

    def _read_plain(self) -> Reading:
        split = self._split()
        percent, note = split.read()
        ready = self._endpoints(split.canary)
        note = note or ("" if ready else f"Service {split.canary} has no ready endpoint")
        gone = not self._header(split).exists()
        promoted = percent == 100 and split.alone() and gone
        return Reading(percent, ready, promoted=promoted, retired=percent == 0 and gone, note=note)

    def _read_service(self, workload: Workload) -> Reading:
        found = workload.service()
        if found is None:
            return Reading(0, retired=True, note=f"InferenceService {workload.name} does not exist")
        if workload.is_stable(found):
            return self._read_promotion(workload, found)
        split = self._split(found)
        percent, note = split.read()
        ready, missing = workload.available()
        retired = percent == 0 and workload.gone() and not self._header(split).exists()
        return Reading(percent, ready, retired=retired, note=note or missing)

    def _read_promotion(self, workload: Workload, found: Manifest) -> Reading:
        """The stable predictor has the canary's version:

        All traffic gets it, once KServe and the gateway have followed.
        """
        renamed = found["spec"]["predictor"].get("name", "") == workload.canary.name
        rolled_out, missing = workload.stable_rolled_out(found)
        entry = workload.entry(found)
        done = entry is None and rolled_out and workload.settled(found)
        if done and renamed:
            done = self._route_of(workload, "").alone()
        if not renamed and entry is not None:
            percent, note = self._split(found).read()
            return Reading(100 if rolled_out else percent, ready=True, note=missing or note)
        return Reading(100, ready=True, promoted=done, note=missing or ("" if done else "KServe has not settled yet"))

    def _header(self, split: RouteSplit) -> ArmRoute:
        return ArmRoute(self._kube, self._namespace, split)

    def _route_of(self, workload: Workload, stable: str) -> RouteSplit:
        route = self._target.route or workload.name
        return RouteSplit(self._kube, self._namespace, route, stable, workload.canary_service)

    def _split(self, found: Manifest | None = None) -> RouteSplit:
        target = self._target
        if self._workload is not None:
            stable = "" if found is None else self._workload.stable_service(found)
            return self._route_of(self._workload, stable)
        return RouteSplit(
            self._kube, self._namespace, target.route or "", target.stable_service or "", target.canary_service or ""
        )

    def _endpoints(self, service: str) -> bool:
        slices = self._kube.list(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            self._namespace,
            labelSelector=f"kubernetes.io/service-name={service}",
        )
        return any(
            endpoint.get("conditions", {}).get("ready") for entry in slices for endpoint in entry.get("endpoints") or []
        )


def _existing(workload: Workload) -> Manifest:
    found = workload.service()
    if found is None:
        raise BackendError(f"InferenceService {workload.name} does not exist", cure="deploy the stable version first")
    return found
