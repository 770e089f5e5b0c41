"""The canary inside an InferenceService of KServe's Standard mode: added as a `spec.canary` entry, promoted, taken back.

KServe's rules that shape this (v0.20, checked on the running controller): a canary entry is its own Deployment and
Service; promotion gives the stable predictor the canary's name and model in one write, keeps the canary's pods and
deletes the old Deployment, but only when the model's URI changes; an entry that leaves while a route still points to
it makes requests fail; the old version's HTTPRoute and autoscaler are left behind. Not here: traffic weights
(backends).
"""

from __future__ import annotations

import copy
from typing import Any

from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import DIGEST_ANNOTATION, Canary

KSERVE = "serving.kserve.io/v1beta1"
FIXED_REPLICAS = ("maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "autoScaling", "workerSpec")
"""Fields that KServe refuses in a canary's predictor."""
FRAMEWORKS = (
    "model",
    "sklearn",
    "xgboost",
    "tensorflow",
    "pytorch",
    "triton",
    "onnx",
    "huggingface",
    "pmml",
    "lightgbm",
    "paddle",
)


class Workload:
    """One InferenceService and its canary."""

    def __init__(self, kube: Objects, namespace: str, name: str, canary: Canary) -> None:
        self._kube, self._namespace = kube, namespace
        self.name, self.canary = name, canary

    def service(self) -> Manifest | None:
        """The InferenceService, None when it does not exist."""
        return self._kube.get(KSERVE, "InferenceService", self.name, self._namespace)

    def stable_service(self, found: Manifest) -> str:
        """Name of the Service and Deployment of the stable predictor."""
        return predictor_name(self.name, found["spec"]["predictor"].get("name", ""))

    @property
    def canary_service(self) -> str:
        """Name of the canary's Service and Deployment."""
        return predictor_name(self.name, self.canary.name)

    def entry(self, found: Manifest) -> dict[str, Any] | None:
        """Our entry of spec.canary."""
        entries = found["spec"].get("canary") or []
        return next((entry for entry in entries if entry["predictor"].get("name") == self.canary.name), None)

    def prepare(self, percent: int = 0) -> None:
        """Adds the canary entry. Another rollout's entry is a conflict."""
        found = self._must()
        if self.entry(found) is not None or self.is_stable(found):
            return
        if others := [entry["predictor"].get("name", "") for entry in found["spec"].get("canary") or []]:
            raise BackendError(
                f"{self.name} has another canary already: {', '.join(others)}", cure="finish or abort it first"
            )
        predictor = canary_predictor(found["spec"]["predictor"], self.canary)
        self._patch(
            found,
            [{"op": "add", "path": "/spec/canary", "value": [{"trafficPercent": percent, "predictor": predictor}]}],
        )

    def set_percent(self, percent: int) -> None:
        """The entry's trafficPercent, which KServe 0.21 and newer turns into route weights."""
        found = self._must()
        entry = self.entry(found)
        if entry is None:
            raise BackendError(f"{self.name} has no canary called {self.canary.name}")
        if entry["trafficPercent"] != percent:
            number = found["spec"]["canary"].index(entry)
            self._patch(found, [{"op": "replace", "path": f"/spec/canary/{number}/trafficPercent", "value": percent}])

    def available(self) -> tuple[bool, str]:
        """Whether all of the canary's replicas can take traffic, and what is missing."""
        return self._deployment(self.canary_service, self.canary.replicas)

    def by_name(self, found: Manifest) -> bool:
        """Whether promotion goes by KServe's rename: only where the model's URI changes."""
        return storage_uri(found["spec"]["predictor"]) != self.canary.storage_uri

    def is_stable(self, found: Manifest) -> bool:
        """Whether the stable predictor is the canary's version: by name, or rewritten to its spec."""
        predictor = found["spec"]["predictor"]
        if predictor.get("name", "") == self.canary.name:
            return True
        return storage_uri(predictor) == self.canary.storage_uri and changed(predictor, self.canary) == predictor

    def promote(self) -> None:
        """Renames the predictor, or rewrites it where only its configuration changed; then tidies up."""
        found = self._must()
        if self.is_stable(found):
            self.tidy(found)
            return
        predictor = copy.deepcopy(found["spec"]["predictor"])
        if self.by_name(found):
            promoted = changed(predictor, self.canary) | {"name": self.canary.name}
            change = [{"op": "replace", "path": "/spec/predictor", "value": promoted}]
            if found["spec"].get("canary"):
                change.append({"op": "remove", "path": "/spec/canary"})
            self._patch(found, change)
        else:
            rewritten = changed(predictor, self.canary)
            self._patch(found, [{"op": "replace", "path": "/spec/predictor", "value": rewritten}])

    def stable_rolled_out(self, found: Manifest) -> tuple[bool, str]:
        """Whether the stable Deployment runs its newest spec everywhere."""
        wanted = int(found["spec"]["predictor"].get("minReplicas") or 1)
        return self._deployment(self.stable_service(found), wanted)

    def drop_entry(self) -> None:
        """Removes the canary entry."""
        found = self._must()
        if self.entry(found) is None:
            return
        rest = [entry for entry in found["spec"]["canary"] if entry["predictor"].get("name") != self.canary.name]
        op = (
            {"op": "replace", "path": "/spec/canary", "value": rest}
            if rest
            else {"op": "remove", "path": "/spec/canary"}
        )
        self._patch(found, [op])

    def gone(self) -> bool:
        """Whether nothing of the canary is left. The Deployment is asked first: its autoscaler outlives it."""
        found = self.service()
        if found is None:
            return True
        return self.entry(found) is None and self._workload_of(self.canary_service) is None and not self._others(found)

    def settled(self, found: Manifest) -> bool:
        """Whether the service is ready and nothing of an earlier predictor is left.

        `observedGeneration` is no help: on KServe 0.20 it may stay behind for good after a promotion.
        """
        conditions = found.get("status", {}).get("conditions") or []
        ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
        return ready and not self._others(found)

    def tidy(self, found: Manifest | None = None) -> None:
        """Deletes HTTPRoutes and autoscalers that KServe leaves when a predictor's Deployment is gone."""
        found = found or self._must()
        for api_version, kind, name in self._left_behind(found):
            self._kube.delete(api_version, kind, name, self._namespace)

    def _others(self, found: Manifest) -> list[tuple[str, str, str]]:
        """(apiVersion, kind, name) of this InferenceService's routes and autoscalers for predictors it no longer has."""
        wanted = {self.stable_service(found)}
        wanted |= {predictor_name(self.name, e["predictor"].get("name", "")) for e in found["spec"].get("canary") or []}
        kinds = (("autoscaling/v2", "HorizontalPodAutoscaler"), ("gateway.networking.k8s.io/v1", "HTTPRoute"))
        return [
            (api_version, kind, entry["metadata"]["name"])
            for api_version, kind in kinds
            for entry in self._kube.list(api_version, kind, self._namespace)
            if entry["metadata"]["name"].endswith("-predictor")
            and entry["metadata"]["name"] not in wanted
            and self._belongs(entry, found)
        ]

    def _belongs(self, entry: Manifest, found: Manifest) -> bool:
        """By owner, or by label: KServe makes a canary's autoscaler without an owner."""
        owners = entry["metadata"].get("ownerReferences") or []
        labels = entry["metadata"].get("labels") or {}
        ours = any(owner["uid"] == found["metadata"]["uid"] for owner in owners)
        return ours or (not owners and labels.get("serving.kserve.io/inferenceservice") == self.name)

    def _left_behind(self, found: Manifest) -> list[tuple[str, str, str]]:
        """Those of them whose Deployment is gone already: KServe will not come back for them."""
        return [entry for entry in self._others(found) if self._workload_of(entry[2]) is None]

    def _workload_of(self, name: str) -> Manifest | None:
        return self._kube.get("apps/v1", "Deployment", name, self._namespace)

    def _deployment(self, name: str, wanted: int) -> tuple[bool, str]:
        found = self._workload_of(name)
        if found is None:
            return False, f"Deployment {name} does not exist yet"
        status = found.get("status", {})
        if status.get("observedGeneration", 0) < found["metadata"]["generation"]:
            return False, f"Deployment {name} has a newer spec"
        updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
        total = status.get("replicas", 0)
        fine = available >= wanted and updated >= wanted and total == updated
        if fine:
            return True, ""
        why = why_not_ready(self._kube, self._namespace, f"app=isvc.{name}")
        return False, f"Deployment {name}: {available} of {wanted} replicas available" + (f"; {why}" if why else "")

    def _must(self) -> Manifest:
        found = self.service()
        if found is None:
            raise BackendError(f"InferenceService {self.name} does not exist", cure="deploy the stable version first")
        return found

    def _patch(self, found: Manifest, change: list[dict[str, Any]]) -> None:
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}
        self._kube.patch(KSERVE, "InferenceService", self.name, self._namespace, [test, *change])


def why_not_ready(kube: Objects, namespace: str, labels: str) -> str:
    """What the first of these pods that is in trouble says of itself; empty when none is."""
    return next(filter(None, map(trouble, kube.list("v1", "Pod", namespace, labelSelector=labels))), "")


def trouble(pod: Manifest) -> str:
    """In one line what keeps a pod from being ready: no place for it, or what a container that ended has said."""
    status = pod.get("status") or {}
    for entry in status.get("conditions") or []:
        if entry["type"] == "PodScheduled" and entry["status"] == "False":
            return " ".join(str(entry.get("message") or entry.get("reason")).split())[:300]
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = entry.get("state") or {}
        ended = state.get("terminated") or (entry.get("lastState") or {}).get("terminated") or {}
        waits = (state.get("waiting") or {}).get("reason", "")
        if ended.get("exitCode"):
            said = " ".join(str(ended.get("message", "")).split())[-300:]
            return f"container {entry['name']} ended with {ended['exitCode']}" + (f": {said}" if said else "")
        if waits.startswith(("ErrImage", "ImagePull", "CreateContainer")):
            return f"container {entry['name']}: {waits}"
    return ""


def predictor_name(service: str, predictor: str) -> str:
    """The name that KServe gives a predictor's Deployment and Service."""
    return f"{service}-{predictor}-predictor" if predictor else f"{service}-predictor"


def canary_predictor(stable: Manifest, canary: Canary) -> Manifest:
    """A full predictor for the canary. KServe lays it over the stable one, so what is left out would be inherited."""
    made = changed(stable, canary)
    for field in FIXED_REPLICAS:
        made.pop(field, None)
    made.update(name=canary.name, minReplicas=canary.replicas)
    for framework in FRAMEWORKS:
        if framework in made:
            # The CRD requires `name` here although KServe's own examples leave it out.
            made[framework].setdefault("name", "")
    return made


def changed(predictor: Manifest, canary: Canary) -> Manifest:
    """A copy of the predictor with the canary's patch, model and digest.

    Another model without a digest says `none`: left out, the stable one's would be inherited and never match.
    """
    same = storage_uri(predictor) == canary.storage_uri
    made = with_uri(_merged(copy.deepcopy(predictor), canary.patch), canary.storage_uri)
    annotations = made.get("annotations") or {}
    if canary.digest or (DIGEST_ANNOTATION in annotations and not same):
        made["annotations"] = {**annotations, DIGEST_ANNOTATION: canary.digest or "none"}
    return made


def with_uri(predictor: Manifest, uri: str) -> Manifest:
    """The predictor with another model. A custom container carries its URI in the variable STORAGE_URI."""
    for framework in FRAMEWORKS:
        if framework in predictor:
            predictor[framework]["storageUri"] = uri
            return predictor
    for container in predictor.get("containers") or []:
        if container.get("name") == "kserve-container":
            rest = [entry for entry in container.get("env") or [] if entry["name"] != "STORAGE_URI"]
            container["env"] = [*rest, {"name": "STORAGE_URI", "value": uri}]
            return predictor
    raise BackendError(
        "the predictor has neither a model nor a container kserve-container", cure="see docs/cluster-canary.md"
    )


def storage_uri(predictor: Manifest) -> str:
    """The model's URI of a predictor, empty when it has none."""
    for framework in FRAMEWORKS:
        if framework in predictor:
            return str(predictor[framework].get("storageUri") or "")
    for container in predictor.get("containers") or []:
        for entry in container.get("env") or []:
            if entry["name"] == "STORAGE_URI":
                return str(entry.get("value") or "")
    return ""


def _merged(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
