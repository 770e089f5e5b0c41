"""A route for requests that carry `x-hatstack-arm`: they go where the gateway assigned them, whatever the weights say.

The gateway keeps a conversation on its arm and says so in the header; weights split only requests without it. This is a
route of its own beside the one that is split, with the same parents, hosts and paths and one more header to match, which
makes it the more specific one. Always holds: it exists only while the canary has traffic, so it never leads to a Service
that is gone. Not here: weights (routes).
"""

from __future__ import annotations

import copy
from typing import Any

from hat_serving.canary.backends.routes import GATEWAY_API, RouteSplit
from hat_serving.canary.kube import Manifest, Objects

HEADER = "x-hatstack-arm"
OWNER = "hatstack.dev/arms-of"


class ArmRoute:
    """The header route of one split."""

    def __init__(self, kube: Objects, namespace: str, split: RouteSplit) -> None:
        self._kube, self._namespace, self._split = kube, namespace, split
        self.name = f"{split.name}-arms"

    def exists(self) -> bool:
        """Whether it is there."""
        return self._kube.get(GATEWAY_API, "HTTPRoute", self.name, self._namespace) is not None

    def write(self) -> None:
        """Makes it, or brings it in line with the route beside it."""
        base = self._kube.get(GATEWAY_API, "HTTPRoute", self._split.name, self._namespace)
        if base is None:
            return
        wanted = arm_route(base, self.name, self._split)
        found = self._kube.get(GATEWAY_API, "HTTPRoute", self.name, self._namespace)
        if found is None:
            self._kube.create(wanted)
        elif not _same(wanted["spec"], found["spec"]):
            change = {"spec": {"rules": wanted["spec"]["rules"], "hostnames": wanted["spec"].get("hostnames")}}
            self._kube.patch(GATEWAY_API, "HTTPRoute", self.name, self._namespace, change)

    def remove(self) -> None:
        """Takes it away."""
        self._kube.delete(GATEWAY_API, "HTTPRoute", self.name, self._namespace)


def arm_route(base: Manifest, name: str, split: RouteSplit) -> Manifest:
    """The header route of `base`: each of its rules that leads to either Service, once for each arm. Pure."""
    metadata = base["metadata"]
    owner = {"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "name": metadata["name"], "uid": metadata["uid"]}
    rules = [
        _for_arm(rule, service, arm)
        for rule in base["spec"].get("rules") or []
        if any(ref["name"] in (split.stable, split.canary) for ref in rule.get("backendRefs") or [])
        for service, arm in ((split.canary, "canary"), (split.stable, "stable"))
    ]
    spec = {"parentRefs": copy.deepcopy(base["spec"].get("parentRefs") or []), "rules": rules}
    if base["spec"].get("hostnames"):
        spec["hostnames"] = list(base["spec"]["hostnames"])
    return {
        "apiVersion": GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {OWNER: metadata["name"]},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _for_arm(rule: dict[str, Any], service: str, arm: str) -> dict[str, Any]:
    made = copy.deepcopy(rule)
    for match in made.setdefault("matches", [{"path": {"type": "PathPrefix", "value": "/"}}]):
        kept = [header for header in match.get("headers") or [] if header["name"].lower() != HEADER]
        match["headers"] = [*kept, {"name": HEADER, "type": "Exact", "value": arm}]
    ref = {key: value for key, value in made["backendRefs"][0].items() if key != "weight"}
    made["backendRefs"] = [{**ref, "name": service}]
    made.pop("name", None)
    return made


def _same(wanted: Any, found: Any) -> bool:
    """Whether everything wanted is found; the server adds defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_same(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(_same, wanted, found))
    return bool(wanted == found)
