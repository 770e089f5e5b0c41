"""A route group of two LLMInferenceServices: weights in `spec.router.route`, in force when every member's routes say so.

On KServe 0.20 one weight change can make a group oscillate: a member that looks unready for a moment is dropped from
its sibling's route and comes back, for up to 12 seconds. So both members' routes are read, and a split counts only
after it has held for `settle` seconds. Promotion and retirement stop a member (annotation) and keep its object, so
that the way back is short.
"""

from __future__ import annotations

from hat_serving.canary.backends import Reading
from hat_serving.canary.backends.routes import GATEWAY_API, not_in_force, percent_of
from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Kube, Manifest
from hat_serving.canary.spec import LlmGroupTarget

LLM = "serving.kserve.io/v1alpha2"
STOP = "serving.kserve.io/stop"


class LlmGroup:
    """Backend `llmisvc`."""

    settle = 6.0

    def __init__(self, kube: Kube, namespace: str, target: LlmGroupTarget) -> None:
        self._kube, self._namespace = kube, namespace
        self.stable, self.canary = target.stable, target.canary_member

    def read(self) -> Reading:
        """From the HTTPRoutes of both members."""
        members = {name: self._member(name) for name in (self.stable, self.canary)}
        canary, stable = members[self.canary], members[self.stable]
        if canary is None or stable is None:
            missing = self.canary if canary is None else self.stable
            return Reading(0, retired=canary is None, note=f"LLMInferenceService {missing} does not exist")
        percent, note = self._percent([name for name, member in members.items() if member and not stopped(member)])
        ready = not stopped(canary) and _ready(canary)
        return Reading(
            percent,
            ready,
            promoted=stopped(stable) and percent == 100 and ready,
            retired=stopped(canary) and percent == 0,
            note=note or ("" if ready else f"LLMInferenceService {self.canary} is not ready"),
        )

    def prepare(self) -> None:
        """Starts the canary's member, at weight 0 as long as it is new to the group."""
        member = self._must(self.canary)
        if stopped(member):
            self._weigh(self.canary, 0)
            self._stop(self.canary, False)

    def set_weight(self, percent: int) -> None:
        """Both members' weights; only what differs is written, because each write makes the group settle anew."""
        self._weigh(self.canary, percent)
        self._weigh(self.stable, 100 - percent)

    def promote(self) -> None:
        """Stops the old member; its object and weight stay for the way back."""
        self._stop(self.stable, True)

    def retire(self) -> None:
        """Stops the canary; refused while it gets traffic."""
        if self.read().effective != 0:
            raise BackendError("the canary still gets traffic")
        self._stop(self.canary, True)

    def _percent(self, running: list[str]) -> tuple[int | None, str]:
        if running == [self.stable]:
            return 0, ""
        found: set[int] = set()
        for name in running:
            route = self._kube.get(GATEWAY_API, "HTTPRoute", f"{name}-kserve-route", self._namespace)
            if route is None:
                return None, f"{name} has no route yet"
            if unseen := not_in_force(route):
                return None, unseen
            percent, note = percent_of(
                _shared(route, self.stable, self.canary), _backend(self.stable), _backend(self.canary)
            )
            if percent is None:
                return None, note
            found.add(percent)
        if len(found) != 1:
            return None, f"the members' routes disagree: {sorted(found)} %"
        return found.pop(), ""

    def _weigh(self, name: str, weight: int) -> None:
        member = self._must(name)
        route = (member["spec"].get("router") or {}).get("route") or {}
        if route.get("weight") != weight:
            change = {"spec": {"router": {"route": {"weight": weight}}}}
            self._kube.patch(LLM, "LLMInferenceService", name, self._namespace, change)

    def _stop(self, name: str, wanted: bool) -> None:
        if stopped(self._must(name)) != wanted:
            change = {"metadata": {"annotations": {STOP: str(wanted).lower()}}}
            self._kube.patch(LLM, "LLMInferenceService", name, self._namespace, change)

    def _member(self, name: str) -> Manifest | None:
        return self._kube.get(LLM, "LLMInferenceService", name, self._namespace)

    def _must(self, name: str) -> Manifest:
        found = self._member(name)
        if found is None:
            raise BackendError(
                f"LLMInferenceService {name} does not exist", cure="apply both members of the group first"
            )
        return found


def stopped(member: Manifest) -> bool:
    """Whether the member is stopped by its annotation."""
    return str((member["metadata"].get("annotations") or {}).get(STOP, "")).lower() == "true"


def _ready(member: Manifest) -> bool:
    conditions = member.get("status", {}).get("conditions") or []
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _backend(name: str) -> str:
    return f"{name}-kserve-workload-svc"


def _shared(route: Manifest, *members: str) -> Manifest:
    """The route with only the rules of the group: a rule for one member by its own path splits nothing."""
    own = tuple(f"/{name}/" for name in members)

    def of_group(rule: Manifest) -> bool:
        paths = [match.get("path", {}).get("value", "") for match in rule.get("matches") or []]
        return not any(mark in f"{path}/" for path in paths for mark in own)

    rules = [rule for rule in route["spec"].get("rules") or [] if of_group(rule)]
    return {**route, "spec": {**route["spec"], "rules": rules}}
