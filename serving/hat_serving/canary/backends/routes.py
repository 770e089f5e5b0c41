"""Weights of an HTTPRoute: what a route really does, and the patch that changes it.

A weight counts as in force only when every parent gateway has accepted the route's present generation and resolved
its references: a route that the gateway has not seen yet, or that points nowhere, splits nothing.
"""

from __future__ import annotations

from typing import Any

from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Manifest, Objects

GATEWAY_API = "gateway.networking.k8s.io/v1"


class RouteSplit:
    """The split of one HTTPRoute between two Services, in every rule that leads to either."""

    def __init__(self, kube: Objects, namespace: str, name: str, stable: str, canary: str) -> None:
        self._kube, self._namespace = kube, namespace
        self.name, self.stable, self.canary = name, stable, canary

    def read(self) -> tuple[int | None, str]:
        """(percent of the canary, why it cannot be told). No route: nothing reaches the canary."""
        route = self._kube.get(GATEWAY_API, "HTTPRoute", self.name, self._namespace)
        if route is None:
            return 0, f"HTTPRoute {self.name} does not exist"
        percent, note = percent_of(route, self.stable, self.canary)
        if percent is None:
            return None, note
        unseen = not_in_force(route)
        return (None, unseen) if unseen else (percent, "")

    def alone(self) -> bool:
        """Whether the canary's Service is the only one that the route leads to."""
        route = self._kube.get(GATEWAY_API, "HTTPRoute", self.name, self._namespace)
        names = {ref["name"] for rule in _rules(route or {}) for ref in rule}
        return names == {self.canary}

    def write(self, percent: int) -> None:
        """Sets the weights. At 0 the canary's reference goes, because a reference to a missing Service answers 500."""
        self._change({self.stable: 100 - percent} | ({self.canary: percent} if percent else {}))

    def only_canary(self) -> None:
        """Drops the stable Service from the route."""
        self._change({self.canary: 100})

    def _change(self, weights: dict[str, int]) -> None:
        route = self._kube.get(GATEWAY_API, "HTTPRoute", self.name, self._namespace)
        if route is None:
            raise BackendError(
                f"HTTPRoute {self.name} does not exist", cure="create it, or name another in target.route"
            )
        version = route["metadata"]["resourceVersion"]
        change: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
        for number, refs in enumerate(_rules(route)):
            ours = [ref for ref in refs if ref["name"] in (self.stable, self.canary)]
            if not ours:
                continue
            rest = [ref for ref in refs if ref not in ours]
            wanted = [{**ours[0], "name": name, "weight": weight} for name, weight in weights.items()]
            if [*wanted, *rest] != refs:
                change.append({"op": "replace", "path": f"/spec/rules/{number}/backendRefs", "value": [*wanted, *rest]})
        if not any(self.stable in str(refs) or self.canary in str(refs) for refs in _rules(route)):
            raise BackendError(
                f"no rule of HTTPRoute {self.name} leads to {self.stable} or {self.canary}",
                cure="check target.stableService",
            )
        if len(change) > 1:
            self._kube.patch(GATEWAY_API, "HTTPRoute", self.name, self._namespace, change)


def percent_of(route: Manifest, stable: str, canary: str) -> tuple[int | None, str]:
    """The canary's percent by the route's references.

    Rules that disagree, or a share that is no whole percent, give None.
    """
    found = set()
    for refs in _rules(route):
        if not any(ref["name"] in (stable, canary) for ref in refs):
            continue
        total = sum(ref.get("weight", 1) for ref in refs)
        ours = sum(ref.get("weight", 1) for ref in refs if ref["name"] == canary)
        if total == 0 or (100 * ours) % total:
            return None, f"weights {ours} of {total} are no whole percent"
        found.add(100 * ours // total)
    if len(found) > 1:
        return None, f"the route's rules disagree: {sorted(found)} %"
    return (found.pop(), "") if found else (0, "")


def not_in_force(route: Manifest) -> str:
    """Why the route's present generation is not in force at every gateway; empty when it is."""
    name, generation = route["metadata"]["name"], route["metadata"].get("generation", 0)
    parents = route.get("status", {}).get("parents") or []
    if len(parents) < len(route["spec"].get("parentRefs") or [1]):
        return f"no gateway has taken HTTPRoute {name} up"
    for parent in parents:
        conditions = {entry["type"]: entry for entry in parent.get("conditions") or []}
        for kind in ("Accepted", "ResolvedRefs"):
            entry = conditions.get(kind)
            if entry is None or entry.get("observedGeneration", generation) < generation:
                return f"the gateway has not seen generation {generation} of HTTPRoute {name}"
            if entry["status"] != "True":
                return f"HTTPRoute {name} is not {kind}: {entry.get('reason', '')} {entry.get('message', '')}".strip()
    return ""


def _rules(route: Manifest) -> list[list[dict[str, Any]]]:
    return [rule.get("backendRefs") or [] for rule in route.get("spec", {}).get("rules") or []]
