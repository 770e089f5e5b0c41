"""The CustomResourceDefinition of CanaryRollout, made from the models, so that API server and controller speak one language.

`python -m hat_serving.canary.crd` prints it; charts/hatstack/files/crds holds the result, and a test keeps the two equal. What a
schema cannot say stands in CEL rules, which the API server checks at every write. Not here: KServe's own rules (preflight).
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from hat_serving.canary.spec import GROUP, KIND, RolloutSpec
from hat_serving.canary.state import State

Schema = dict[str, Any]
KEPT = (
    "type",
    "pattern",
    "enum",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "required",
)
LONGEST = 4096
FIXED = (
    "release",
    "baseline",
    "workspace",
    "target",
    "steps",
    "metrics",
    "analysis",
    "prometheus",
    "registry",
    "arms",
    "progressDeadline",
    "soak",
)
"""Fields of the spec that never change; `paused`, `promote` and `abort` do."""

RULES: dict[str, tuple[tuple[str, str], ...]] = {
    "Step": (
        (
            "[has(self.setWeight), has(self.pause), has(self.analysis)].filter(x, x).size() == 1",
            "a step is exactly one of setWeight, pause, analysis",
        ),
    ),
    "Metric": (
        (
            "[has(self.threshold), has(self.share), has(self.sampleRatio), has(self.evidence)].filter(x, x).size() == 1",
            "give exactly one of threshold, share, sampleRatio, evidence",
        ),
        (
            "!has(self.threshold) || !has(self.minimumSample) || self.minimumSample == 0 || has(self.threshold.sampleQuery)",
            "minimumSample needs threshold.sampleQuery",
        ),
    ),
    "Bound": (("has(self.atLeast) || has(self.atMost)", "give atLeast, atMost or both"),),
    "Target": (
        (
            "self.backend != 'httproute' || (has(self.inferenceService)"
            " ? has(self.canary) && !has(self.stableService) && !has(self.canaryService)"
            " : has(self.route) && has(self.stableService) && has(self.canaryService))",
            "httproute needs inferenceService and canary, or route, stableService and canaryService",
        ),
        (
            "!(self.backend in ['isvc-canary', 'knative']) || (has(self.inferenceService) && has(self.canary))",
            "this backend needs inferenceService and canary",
        ),
        (
            "self.backend != 'llmisvc' || (has(self.stable) && has(self.canaryMember))",
            "llmisvc needs stable and canaryMember",
        ),
        ("self.backend != 'gateway' || (has(self.url) && has(self.deployment))", "gateway needs url and deployment"),
    ),
    "RolloutSpec": (
        ("has(self.steps[0].setWeight)", "the first step sets a weight"),
        (
            "self.steps.filter(s, has(s.setWeight)).map(s, s.setWeight).isSorted()",
            "weights never go down; an abort takes the traffic back",
        ),
        (
            "!has(self.metrics) || self.metrics.all(m, has(m.evidence)) || has(self.prometheus)",
            "metrics need prometheus.url",
        ),
        (
            "!has(self.metrics) || self.metrics.all(m, !has(m.evidence)) || has(self.registry)",
            "evidence needs registry.url",
        ),
        (
            "self.steps.all(s, !has(s.analysis) || (has(self.metrics) && self.metrics.size() > 0))",
            "an analysis step needs metrics",
        ),
        (
            "self.steps.all(s, !has(s.analysis) || !has(s.analysis.metrics)"
            " || s.analysis.metrics.all(n, self.metrics.exists(m, m.name == n)))",
            "an analysis names a metric that does not exist",
        ),
        (
            "!has(self.analysis) || (has(self.metrics) && self.analysis.metrics.all(n, self.metrics.exists(m, m.name == n)))",
            "the background analysis names a metric that does not exist",
        ),
        ("!has(oldSelf.abort) || !oldSelf.abort || (has(self.abort) && self.abort)", "an abort cannot be taken back"),
    ),
}
"""Model → (rule, what it says)."""
COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Step", "integer", ".status.step", 0),
    ("Of", "integer", ".status.stepCount", 0),
    ("Desired", "integer", ".status.desiredWeight", 0),
    ("Effective", "integer", ".status.effectiveWeight", 0),
    ("Reason", "string", ".status.reason", 0),
    ("Backend", "string", ".spec.target.backend", 1),
    ("Release", "string", ".spec.release", 1),
    ("Message", "string", ".status.message", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def crd() -> Schema:
    """The whole definition."""
    spec, status = schema_of(RolloutSpec), schema_of(State)
    spec["properties"]["metrics"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    spec["x-kubernetes-validations"] += [_fixed(name) for name in FIXED]
    status["properties"] |= {
        "observedGeneration": {"type": "integer", "description": "Generation of the spec that this status belongs to."},
        "stepCount": {"type": "integer", "description": "Number of steps."},
        "conditions": _conditions(),
    }
    status.pop("required", None)
    root = {
        "type": "object",
        "description": "A release that gets traffic step by step, while evidence allows it.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority}
            for name, kind, path, priority in COLUMNS
        ],
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": "canaryrollouts",
        "singular": "canaryrollout",
        "shortNames": ["canary"],
        "categories": ["hatstack"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"canaryrollouts.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def schema_of(model: Any) -> Schema:
    """A structural schema of a pydantic model: references resolved, unions of targets merged, rules added."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), model.__name__)


def _convert(node: Schema, models: dict[str, Schema], name: str = "") -> Schema:
    if "$ref" in node:
        target = node["$ref"].rpartition("/")[2]
        return _convert(models[target], models, target) | (
            {"description": node["description"]} if "description" in node else {}
        )
    if "oneOf" in node:
        return _merged(node, models)
    if "anyOf" in node:
        (only,) = (entry for entry in node["anyOf"] if entry.get("type") != "null")
        described = {"description": node["description"]} if "description" in node else {}
        return _convert(only, models) | described
    result = {key: node[key] for key in KEPT if key in node}
    if "const" in node:
        result |= {"type": "string", "enum": [node["const"]]}
    for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if key in node:
            result |= {bound: node[key], key: True}
    if "description" in node:
        result["description"] = node["description"].partition("\n\n")[0].replace("\n", " ")
    if result.get("type") == "string" and "enum" not in result and "format" not in result:
        result.setdefault("maxLength", LONGEST)
    if "items" in node:
        result["items"] = _convert(node["items"], models)
    if "properties" in node:
        result["properties"] = {key: _convert(value, models) for key, value in node["properties"].items()}
    elif isinstance(extra := node.get("additionalProperties"), dict):
        result["additionalProperties"] = _convert(extra, models)
    elif extra is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if name in RULES:
        result["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in RULES[name]]
    return result


def _merged(node: Schema, models: dict[str, Schema]) -> Schema:
    """One object with the properties of all variants: structural schemas know no unions, the rules tell them apart."""
    variants = [_convert(entry, models) for entry in node["oneOf"]]
    properties: Schema = {}
    for variant in variants:
        for key, value in variant["properties"].items():
            properties.setdefault(key, value)
    backends = [variant["properties"]["backend"]["enum"][0] for variant in variants]
    properties["backend"] = {"type": "string", "enum": backends, "description": "Who splits the traffic."}
    rules = [{"rule": rule, "message": message} for rule, message in RULES["Target"]]
    described = {"description": "What gets the traffic, and who splits it."}
    return {
        "type": "object",
        "required": ["backend"],
        "properties": properties,
        "x-kubernetes-validations": rules,
    } | described


def _conditions() -> Schema:
    """Kubernetes' own form, so that `kubectl wait --for=condition=Promoted` works."""
    texts = {key: {"type": "string", "maxLength": LONGEST} for key in ("type", "status", "reason", "message")}
    texts["status"]["enum"] = ["True", "False", "Unknown"]
    texts["status"].pop("maxLength")
    numbers: Schema = {"observedGeneration": {"type": "integer"}}
    times: Schema = {"lastTransitionTime": {"type": "string", "format": "date-time"}}
    return {
        "type": "array",
        "description": "Promoted, SplitInForce, Held.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime"],
            "properties": {**texts, **numbers, **times},
        },
    }


def _fixed(name: str) -> Schema:
    rule = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    return {"rule": rule, "message": f"{name} cannot change once the rollout exists; abort it and start another"}


def text() -> str:
    """The definition as YAML, the same on every machine."""
    return "# Made by `python -m hat_serving.canary.crd`; change the models, not this file.\n" + yaml.safe_dump(
        crd(), sort_keys=False, width=110
    )


if __name__ == "__main__":
    sys.stdout.write(text())
