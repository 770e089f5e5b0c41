"""KServe on Knative: the last revision that had all traffic, and the newest one with `canaryTrafficPercent`.

Only two revisions take part. The stable predictor's spec is kept in an annotation while the rollout runs, so that an
abort can restore it; without it Knative would go on serving the old revision under the new spec. What is in force is
read from the traffic that KServe reports of the Knative route. Not run in this repository's tests: Knative's
controllers are not there; the objects are checked against the API server's schema.
"""

from __future__ import annotations

import json

from hat_serving.canary.backends import Reading
from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import GROUP, KnativeTarget
from hat_serving.canary.workload import KSERVE, Workload, canary_predictor, storage_uri

STABLE = f"{GROUP}/stable-predictor"


class Knative:
    """Backend `knative`."""

    settle = 0.0

    def __init__(self, kube: Objects, namespace: str, target: KnativeTarget) -> None:
        self._kube, self._namespace, self._target = kube, namespace, target
        self._workload = Workload(kube, namespace, target.inference_service, target.canary)

    def read(self) -> Reading:
        """From `status.components.predictor.traffic`."""
        found = self._workload.service()
        if found is None:
            return Reading(0, retired=True, note=f"InferenceService {self._workload.name} does not exist")
        ours = storage_uri(found["spec"]["predictor"]) == self._target.canary.storage_uri
        if not ours:
            return Reading(0, retired=STABLE not in _annotations(found))
        percent, ready, note = traffic_of(found)
        whole = "canaryTrafficPercent" not in found["spec"]["predictor"] and STABLE not in _annotations(found)
        return Reading(percent, ready, promoted=whole and percent == 100, note=note)

    def prepare(self) -> None:
        """A new revision at 0 %; the stable spec goes into the annotation."""
        found = self._must()
        predictor = found["spec"]["predictor"]
        if storage_uri(predictor) == self._target.canary.storage_uri:
            return
        made = canary_predictor(predictor, self._target.canary) | {"canaryTrafficPercent": 0}
        for field in ("name", "minReplicas"):
            made.pop(field, None)
            if field in predictor:
                made[field] = predictor[field]
        self._write(found, made, json.dumps(predictor, sort_keys=True))

    def set_weight(self, percent: int) -> None:
        """`canaryTrafficPercent`."""
        found = self._must()
        predictor = found["spec"]["predictor"]
        if storage_uri(predictor) != self._target.canary.storage_uri:
            return
        if predictor.get("canaryTrafficPercent") != percent:
            self._write(found, {**predictor, "canaryTrafficPercent": percent}, _annotations(found).get(STABLE))

    def promote(self) -> None:
        """Without a percent the newest revision is the stable one."""
        found = self._must()
        predictor = {k: v for k, v in found["spec"]["predictor"].items() if k != "canaryTrafficPercent"}
        self._write(found, predictor, None)

    def retire(self) -> None:
        """Restores the stable predictor's spec."""
        found = self._must()
        kept = _annotations(found).get(STABLE)
        if kept is None:
            return
        if traffic_of(found)[0] != 0:
            raise BackendError("the canary still gets traffic")
        self._write(found, json.loads(kept), None)

    def _write(self, found: Manifest, predictor: Manifest, stable: str | None) -> None:
        annotations = {key: value for key, value in _annotations(found).items() if key != STABLE}
        annotations |= {STABLE: stable} if stable is not None else {}
        change = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
            {"op": "replace", "path": "/spec/predictor", "value": predictor},
        ]
        self._kube.patch(KSERVE, "InferenceService", self._workload.name, self._namespace, change)

    def _must(self) -> Manifest:
        found = self._workload.service()
        if found is None:
            raise BackendError(
                f"InferenceService {self._workload.name} does not exist", cure="deploy the stable version first"
            )
        return found


def traffic_of(found: Manifest) -> tuple[int | None, bool, str]:
    """(percent of the newest revision, whether it is ready, why the percent cannot be told)."""
    predictor = found.get("status", {}).get("components", {}).get("predictor") or {}
    created, ready = predictor.get("latestCreatedRevision"), predictor.get("latestReadyRevision")
    if found.get("status", {}).get("observedGeneration") != found["metadata"].get("generation"):
        return None, False, "KServe has not seen the present generation"
    traffic = predictor.get("traffic") or []
    if not traffic or created is None:
        return None, False, "no traffic is reported"
    percent = sum(entry.get("percent") or 0 for entry in traffic if entry.get("revisionName") == created)
    return percent, created == ready, "" if created == ready else f"revision {created} is not ready"


def _annotations(found: Manifest) -> dict[str, str]:
    return dict(found["metadata"].get("annotations") or {})
