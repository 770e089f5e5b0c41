"""Leader election by a Lease, as Kubernetes' own controllers do it: one controller acts, the others wait.

`decide` is pure. The clocks of two holders need not agree: a lease counts as expired when it has not changed for its
duration on the watcher's own clock. Writes carry the resource version that was read, so that of two candidates one
loses. Not here: what a leader does; it must stop at once when `renew` says that the lease is lost.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal

from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Manifest, Objects

LEASES = "coordination.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Seen:
    """The lease as it was last seen to change."""

    version: str = ""
    since: float = 0.0
    """This process's monotonic clock at that moment."""


def decide(
    lease: Manifest | None, identity: str, seen: Seen, now: float
) -> tuple[Literal["take", "renew", "wait"], Seen]:
    """What to do about the lease, and what to remember of it."""
    if lease is None:
        return "take", seen
    spec, version = lease.get("spec", {}), lease["metadata"]["resourceVersion"]
    if spec.get("holderIdentity") == identity:
        return "renew", Seen(version, now)
    if not spec.get("holderIdentity"):
        return "take", seen
    if version != seen.version:
        return "wait", Seen(version, now)
    expired = now - seen.since > float(spec.get("leaseDurationSeconds") or 0)
    return ("take" if expired else "wait"), seen


class LeaderLease:
    """One candidate for one lease. `duration`: seconds after which a silent leader is replaced."""

    def __init__(self, kube: Objects, namespace: str, name: str, identity: str, duration: float = 15.0) -> None:
        self._kube, self._namespace, self._name = kube, namespace, name
        self.identity, self.duration = identity, duration
        self._seen = Seen()

    def step(self, now: float) -> bool:
        """Tries to get or keep the lease; True while it is held. `now` is a monotonic clock.

        A refusal is "not held".
        """
        lease = self._kube.get(LEASES, "Lease", self._name, self._namespace)
        action, self._seen = decide(lease, self.identity, self._seen, now)
        if action == "wait":
            return False
        try:
            self._write(lease, taken=action == "take")
        except ClusterError as error:
            if error.code == 409:
                return False
            raise
        return True

    def release(self) -> None:
        """Gives the lease up, so that the next leader need not wait for it to expire."""
        lease = self._kube.get(LEASES, "Lease", self._name, self._namespace)
        if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": lease["metadata"]["resourceVersion"]}
            clear = {"op": "replace", "path": "/spec/holderIdentity", "value": ""}
            self._kube.patch(LEASES, "Lease", self._name, self._namespace, [test, clear])

    def _write(self, lease: Manifest | None, *, taken: bool) -> None:
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        old: dict[str, Any] = (lease or {}).get("spec", {})
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(round(self.duration), 1),
            "acquireTime": moment if taken else old.get("acquireTime", moment),
            "renewTime": moment,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (1 if taken and lease else 0),
        }
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            self._kube.create({"apiVersion": LEASES, "kind": "Lease", "metadata": metadata, "spec": spec})
            return
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": lease["metadata"]["resourceVersion"]}
        replace = {"op": "replace", "path": "/spec", "value": spec}
        self._kube.patch(LEASES, "Lease", self._name, self._namespace, [test, replace])
