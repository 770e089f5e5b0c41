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
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import GROUP, LlmGroupTarget
from hat_serving.canary.workload import why_not_ready

LLM = "serving.kserve.io/v1alpha2"
STOP = "serving.kserve.io/stop"
GROUP_LEFT = f"{GROUP}/route-group"
"""Annotation that keeps the name of the group that a member has left, for the way back."""


class LlmGroup:
    """Backend `llmisvc`."""

    settle = 6.0

    def __init__(self, kube: Objects, namespace: str, target: LlmGroupTarget) -> None:
        self._kube, self._namespace = kube, namespace
        self.stable, self.canary = target.stable, target.canary_member

    def read(self) -> Reading:
        """From the HTTPRoutes of both members."""
        members = {name: self._member(name) for name in (self.stable, self.canary)}
        canary, stable = members[self.canary], members[self.stable]
        if canary is None or stable is None:
            missing = self.canary if canary is None else self.stable
            return Reading(0, retired=canary is None, note=f"LLMInferenceService {missing} does not exist")
        running = [name for name, member in members.items() if member and _group(member) and not stopped(member)]
        percent, note = self._percent(running)
        # While the old member stops, the canary is held unready by the group alone; its pods say whether it can serve.
        ready = not stopped(canary) and _true(canary, "WorkloadsReady" if stopped(stable) else "Ready")
        return Reading(
            percent,
            ready,
            promoted=stopped(stable) and _group(stable) is None and percent == 100 and _true(canary, "Ready"),
            retired=stopped(canary) and _group(canary) is None and percent == 0,
            note=note or ("" if ready else self._why()),
        )

    def _why(self) -> str:
        said = f"LLMInferenceService {self.canary} is not ready"
        labels = f"app.kubernetes.io/name={self.canary},app.kubernetes.io/part-of=llminferenceservice"
        why = why_not_ready(self._kube, self._namespace, labels)
        return f"{said}; {why}" if why else said

    def prepare(self) -> None:
        """Starts the canary's member, at weight 0 as long as it is new to the group."""
        member = self._must(self.canary)
        if left := (member["metadata"].get("annotations") or {}).get(GROUP_LEFT):
            change = {
                "metadata": {"annotations": {GROUP_LEFT: None}},
                "spec": {"router": {"route": {"group": left, "weight": 0}}},
            }
            self._kube.patch(LLM, "LLMInferenceService", self.canary, self._namespace, change)
        if stopped(member):
            self._stop(self.canary, False)

    def set_weight(self, percent: int) -> None:
        """Both members' weights; only what differs is written, because each write makes the group settle anew."""
        self._weigh(self.canary, percent)
        self._weigh(self.stable, 100 - percent)

    def promote(self) -> None:
        """The old member stops, and leaves the group once its route is gone; its object stays for the way back."""
        self._leave(self.stable)

    def retire(self) -> None:
        """The canary stops and leaves the group; refused while it gets traffic."""
        if self.read().effective != 0:
            raise BackendError("the canary still gets traffic")
        self._leave(self.canary)

    def _leave(self, name: str) -> None:
        """Stops first: a running member that leaves gets a route of its own for the shared path and, when older, wins it.

        Leaves then: a stopped member in the group keeps its sibling from being ready, for as long as it is there.
        """
        self._stop(name, True)
        group = _group(self._must(name))
        if group is None or self._route(name) is not None:
            return
        change = {
            "metadata": {"annotations": {GROUP_LEFT: group}},
            "spec": {"router": {"route": {"group": None, "weight": None}}},
        }
        self._kube.patch(LLM, "LLMInferenceService", name, self._namespace, change)

    def _route(self, name: str) -> Manifest | None:
        return self._kube.get(GATEWAY_API, "HTTPRoute", f"{name}-kserve-route", self._namespace)

    def _percent(self, running: list[str]) -> tuple[int | None, str]:
        for alone, other, percent in ((self.stable, self.canary, 0), (self.canary, self.stable, 100)):
            if running == [alone]:
                left = self._route(other)
                return (percent, "") if left is None else (None, f"{other} still has a route")
        found: set[int] = set()
        for name in running:
            route = self._route(name)
            if route is None:
                return None, f"{name} has no route yet"
            if unseen := not_in_force(route):
                return None, unseen
            shared = _shared(route, self.stable, self.canary)
            share, note = percent_of(shared, _backend(self.stable), _backend(self.canary))
            if share is None:
                return None, note
            found.add(share)
        if len(found) != 1:
            return None, f"the members' routes disagree: {sorted(found)} %"
        return found.pop(), ""

    def _weigh(self, name: str, weight: int) -> None:
        member = self._must(name)
        if _group(member) is not None and member["spec"]["router"]["route"].get("weight") != weight:
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


def _group(member: Manifest) -> str | None:
    return ((member["spec"].get("router") or {}).get("route") or {}).get("group")


def _true(member: Manifest, condition: str) -> bool:
    conditions = member.get("status", {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


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
