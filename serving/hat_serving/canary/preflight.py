"""What would make a rollout fail, found before it begins. Each finding says what is wrong, why it matters, and what to do.

Only reads. The checks mirror what KServe's webhooks and controllers do, so that the answer comes now and in words,
not as a pod that never gets ready. Not here: the checks of a running rollout (machine, backends).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from hat_serving.canary import capacity
from hat_serving.canary.backends.llmisvc import LLM, stopped
from hat_serving.canary.backends.routes import GATEWAY_API
from hat_serving.canary.errors import ClusterError, MetricsError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.metrics import QuerySource, fill
from hat_serving.canary.spec import (
    API_VERSION,
    KIND,
    Canary,
    HttpRouteTarget,
    IsvcCanaryTarget,
    KnativeTarget,
    LlmGroupTarget,
    RolloutSpec,
)
from hat_serving.canary.state import TERMINAL
from hat_serving.canary.workload import KSERVE, storage_uri

KSERVE_NAMESPACE = "kserve"
MODE = "serving.kserve.io/deploymentMode"
WRITES_WEIGHTS = (0, 21)
"""First KServe release whose controller turns trafficPercent into route weights."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. An error blocks the rollout, a warning does not."""

    code: str
    level: Literal["error", "warning"]
    message: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.message} ({self.cure})" if self.cure else self.message


def preflight(spec: RolloutSpec, kube: Objects, namespace: str, name: str, source: QuerySource | None) -> list[Finding]:
    """All findings, errors first. A check that the API server refuses becomes a finding about rights."""
    found: list[Finding] = []
    for check in _checks(spec, kube, namespace, name, source):
        try:
            found += check()
        except ClusterError as error:
            cure = "grant it in the chart's role (rbac.create), or ask who runs the cluster"
            found.append(Finding("ClusterRefuses", "error", str(error), cure))
    return sorted(found, key=lambda finding: finding.level != "error")


def _checks(
    spec: RolloutSpec, kube: Objects, namespace: str, name: str, source: QuerySource | None
) -> list[Callable[[], Iterator[Finding]]]:
    target = spec.target
    checks = [
        lambda: _alone(spec, kube, namespace, name),
        lambda: _queries(spec, source),
        lambda: _digest(spec),
    ]
    if isinstance(target, HttpRouteTarget) and target.inference_service is None:
        return [*checks, lambda: _plain(target, kube, namespace)]
    if isinstance(target, LlmGroupTarget):
        return [
            *checks,
            lambda: _group(target, kube, namespace),
            lambda: gateway_api(kube),
            lambda: _member_fits(target, kube, namespace),
        ]
    if isinstance(target, HttpRouteTarget | IsvcCanaryTarget | KnativeTarget):
        service, canary = target.inference_service or "", target.canary
        assert canary is not None
        mode = "Knative" if isinstance(target, KnativeTarget) else "Standard"
        checks.append(lambda: _service(kube, namespace, service, canary, mode))
        if mode == "Standard":
            writes = isinstance(target, IsvcCanaryTarget)
            checks.append(lambda: gateway_api(kube))
            checks.append(lambda: _kserve_version(kube, wants_weights=writes))
            checks.append(lambda: _capacity(kube, namespace, service, canary))
    return checks


def _alone(spec: RolloutSpec, kube: Objects, namespace: str, name: str) -> Iterator[Finding]:
    """Two rollouts of one target would undo each other."""

    def aims_at(raw: Manifest) -> set[str]:
        keys = ("inferenceService", "route", "stable", "canaryMember", "url")
        return {f"{key}={raw[key]}" for key in keys if isinstance(raw.get(key), str)}

    ours = aims_at(spec.target.model_dump(mode="json", by_alias=True))
    others = sorted(kube.list(API_VERSION, KIND, namespace), key=_age)
    waits = [entry["metadata"]["name"] for entry in others]
    for other in others:
        theirs, phase = other["metadata"]["name"], (other.get("status") or {}).get("phase", "Pending")
        # Of two that have not begun the older one goes first.
        later = phase == "Pending" and name in waits and waits.index(theirs) > waits.index(name)
        if theirs != name and phase not in TERMINAL and not later and ours & aims_at(other["spec"]["target"]):
            cure = f"wait for it, or abort it: hat canary abort {theirs}"
            yield Finding("AnotherRollout", "error", f"rollout {theirs} works on the same target", cure)


def _digest(spec: RolloutSpec) -> Iterator[Finding]:
    """A release that is only a name can be another one tomorrow, and its evidence finds no place."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", spec.release):
        cure = "give the release's digest: hat release list"
        yield Finding("NoDigest", "warning", f"release {spec.release[:80]} is a name, not a digest", cure)
    canary = getattr(spec.target, "canary", None)
    if isinstance(canary, Canary) and not canary.digest:
        cure = "give target.canary.digest: hat canary render --model NAME@VERSION writes it"
        message = "the weights have no digest: no pod compares them before it gets traffic"
        yield Finding("WeightsNotCompared", "warning", message, cure)


def _age(entry: Manifest) -> tuple[str, str]:
    return str(entry["metadata"].get("creationTimestamp")), str(entry["metadata"]["uid"])


def _queries(spec: RolloutSpec, source: QuerySource | None) -> Iterator[Finding]:
    """A metric that can never be measured would hold the rollout at its first analysis."""
    for metric in spec.metrics:
        kinds = (metric.threshold, metric.share, metric.sample_ratio)
        kind = next((entry for entry in kinds if entry is not None), None)
        fields = ("query", "sample_query", "events", "total", "units")
        for expression in (getattr(kind, field, None) for field in fields):
            if not expression or source is None:
                continue
            try:
                source.query(fill(expression, spec, spec.arms.stable, 60.0))
            except MetricsError as error:
                yield Finding(
                    "QueryFails", "error", f"metric {metric.name}: {error.message}", "check the query in Prometheus"
                )


def _plain(target: HttpRouteTarget, kube: Objects, namespace: str) -> Iterator[Finding]:
    if kube.get(GATEWAY_API, "HTTPRoute", target.route or "", namespace) is None:
        yield Finding(
            "NoRoute", "error", f"HTTPRoute {target.route} does not exist", "create it with the stable Service"
        )
    for name in (target.stable_service, target.canary_service):
        if kube.get("v1", "Service", name or "", namespace) is None:
            yield Finding("NoService", "error", f"Service {name} does not exist", "deploy it first")


def _group(target: LlmGroupTarget, kube: Objects, namespace: str) -> Iterator[Finding]:
    groups = {}
    for name in (target.stable, target.canary_member):
        member = kube.get(LLM, "LLMInferenceService", name, namespace)
        if member is None:
            yield Finding("NoMember", "error", f"LLMInferenceService {name} does not exist", "apply both members first")
            continue
        route = (member["spec"].get("router") or {}).get("route") or {}
        groups[name] = (route.get("group"), member["spec"]["model"].get("name"))
    if len(set(groups.values())) > 1 or any(group is None for group, _ in groups.values()):
        cure = "give both the same spec.router.route.group and the same spec.model.name"
        yield Finding(
            "NotOneGroup", "error", f"the members do not share a route group and a model name: {groups}", cure
        )


def _member_fits(target: LlmGroupTarget, kube: Objects, namespace: str) -> Iterator[Finding]:
    """A stopped member has no pods yet; those of a running one have their place already."""
    member = kube.get(LLM, "LLMInferenceService", target.canary_member, namespace)
    if member is None or not stopped(member):
        return
    template = member["spec"].get("template") or {}
    product = (template.get("nodeSelector") or {}).get(capacity.PRODUCT, "")
    pods, each = int(member["spec"].get("replicas") or 1), capacity.accelerators(template)
    nodes = capacity.free_nodes(kube.list("v1", "Node"), kube.list("v1", "Pod"))
    placement = capacity.place(capacity.Need("canary starts", pods, each, product), nodes)
    if not placement.fits:
        yield Finding("NoCapacity", "error", placement.advice(), "or fewer replicas of the member")


def _service(kube: Objects, namespace: str, name: str, canary: Canary, mode: str) -> Iterator[Finding]:
    """The rules of KServe's webhooks, and what they let through but cannot work."""
    found = kube.get(KSERVE, "InferenceService", name, namespace)
    if found is None:
        yield Finding(
            "NoService", "error", f"InferenceService {name} does not exist", "deploy the stable version first"
        )
        return
    annotations = found["metadata"].get("annotations") or {}
    actual = (found.get("status") or {}).get("deploymentMode") or annotations.get(MODE)
    if MODE not in annotations:
        cure = f"set annotation {MODE}: {mode}; a change of the cluster's default would switch the mode"
        yield Finding(
            "ModeNotExplicit", "warning", f"InferenceService {name} leaves its deployment mode to the default", cure
        )
    if actual not in (mode, None, {"Standard": "RawDeployment", "Knative": "Serverless"}[mode]):
        yield Finding(
            "WrongMode",
            "error",
            f"InferenceService {name} runs in mode {actual}, not {mode}",
            "choose the backend for it",
        )
    predictor = found["spec"]["predictor"]
    if not any(
        c["type"] == "Ready" and c["status"] == "True" for c in (found.get("status") or {}).get("conditions") or []
    ):
        yield Finding(
            "StableNotReady", "error", f"InferenceService {name} is not ready", "repair the stable version first"
        )
    if mode == "Knative":
        return
    if canary.name == predictor.get("name", "") and canary.storage_uri == storage_uri(predictor):
        yield Finding(
            "SameVersion", "error", f"{canary.name} is the stable version already", "give the canary another name"
        )
    if canary.replicas > int(predictor.get("minReplicas") or 1):
        cure = f"lower canary.replicas, or raise minReplicas of {name}"
        yield Finding(
            "TooManyReplicas", "error", "KServe refuses a canary with more replicas than the stable version", cure
        )
    if not storage_uri(predictor):
        cure = "a custom container needs the environment variable STORAGE_URI on kserve-container"
        yield Finding("NoStorageUri", "error", f"the stable predictor of {name} names no model", cure)
    if canary.storage_uri == storage_uri(predictor):
        message = (
            "the canary changes only its configuration: promotion rewrites the stable predictor and rolls its pods"
        )
        yield Finding(
            "ConfigurationOnly", "warning", message, "give the profile a storage URI of its own to keep the pods"
        )


def gateway_api(kube: Objects) -> Iterator[Finding]:
    """Whether KServe writes HTTPRoutes, and below a Gateway that someone has accepted."""
    config = kube.get("v1", "ConfigMap", "inferenceservice-config", KSERVE_NAMESPACE)
    if config is None:
        yield Finding("NoKServe", "error", "KServe's ConfigMap inferenceservice-config is missing", "install KServe")
        return
    ingress = json.loads(config["data"].get("ingress") or "{}")
    if not ingress.get("enableGatewayApi"):
        cure = "set enableGatewayApi to true in inferenceservice-config; without it there is no split and no error"
        yield Finding("GatewayApiOff", "error", "KServe writes Ingresses, not HTTPRoutes", cure)
        return
    namespace, _, name = str(ingress.get("kserveIngressGateway") or "").partition("/")
    gateway = kube.get(GATEWAY_API, "Gateway", name, namespace) if name else None
    if gateway is None:
        yield Finding(
            "NoGateway",
            "error",
            f"Gateway {namespace}/{name} does not exist",
            "create it, or change kserveIngressGateway",
        )
        return
    conditions = {entry["type"]: entry["status"] for entry in (gateway.get("status") or {}).get("conditions") or []}
    if conditions.get("Accepted") != "True":
        yield Finding(
            "GatewayNotAccepted",
            "error",
            f"no controller has accepted Gateway {namespace}/{name}",
            "check its GatewayClass",
        )


def _kserve_version(kube: Objects, *, wants_weights: bool) -> Iterator[Finding]:
    """Who writes the weights: exactly one of KServe and hatstack may."""
    version = kserve_version(kube)
    if version is None:
        yield Finding("KServeVersionUnknown", "warning", "KServe's version cannot be told from its Deployment's image")
    elif wants_weights and version < WRITES_WEIGHTS:
        message = f"KServe {version[0]}.{version[1]} starts a canary's pods but sends them no traffic"
        yield Finding("NoWeights", "error", message, "use backend httproute, or KServe 0.21 and newer")
    elif not wants_weights and version >= WRITES_WEIGHTS:
        message = f"KServe {version[0]}.{version[1]} writes the route's weights itself and would undo ours"
        yield Finding("TwoWriters", "error", message, "use backend isvc-canary")


def kserve_version(kube: Objects) -> tuple[int, int] | None:
    """(major, minor) from the image tag of KServe's controller."""
    found = kube.get("apps/v1", "Deployment", "kserve-controller-manager", KSERVE_NAMESPACE)
    for container in (found or {}).get("spec", {}).get("template", {}).get("spec", {}).get("containers") or []:
        parts = container["image"].partition("@")[0].rpartition(":")[2].removeprefix("v").split(".")
        if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
            return int(parts[0]), int(parts[1])
    return None


def _capacity(kube: Objects, namespace: str, name: str, canary: Canary) -> Iterator[Finding]:
    """Accelerators for the canary's pods, from the stable Deployment's own pod template."""
    found = kube.get(KSERVE, "InferenceService", name, namespace)
    if found is None:
        return
    stable = found["spec"]["predictor"].get("name", "")
    deployment = kube.get(
        "apps/v1", "Deployment", f"{name}-{stable}-predictor" if stable else f"{name}-predictor", namespace
    )
    if deployment is None:
        return
    template = deployment["spec"]["template"]["spec"]
    each = capacity.accelerators(template)
    if not each:
        return
    product = (template.get("nodeSelector") or {}).get(capacity.PRODUCT, "")
    nodes = capacity.free_nodes(kube.list("v1", "Node"), kube.list("v1", "Pod"))
    replicas = int(found["spec"]["predictor"].get("minReplicas") or 1)
    for need in capacity.needs_of_service(replicas, canary.replicas, each, product):
        placement = capacity.place(need, nodes)
        if not placement.fits:
            level: Literal["error", "warning"] = "error" if need.moment == "canary starts" else "warning"
            yield Finding("NoCapacity", level, placement.advice(), "or fewer canary replicas")
