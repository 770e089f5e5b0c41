"""The controller of CanaryRollouts on Kubernetes: kopf watches and looks, a Lease makes sure that one replica acts.

Each resource is looked at every `interval` seconds by a timer of its own, so two looks at one rollout never overlap.
Its state is its status; the controller keeps nothing in memory and may be killed at any moment. A finalizer makes a
deletion an abort: the object goes when its canary is gone. Losing the Lease ends the process, and Kubernetes starts
it again as a candidate. Not here: decisions (machine), writes to routes (backends).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kopf

from hat_serving.canary.backends import TrafficBackend, backend_for
from hat_serving.canary.conditions import conditions
from hat_serving.canary.driver import Look, Wishes, look
from hat_serving.canary.errors import ClusterError, InvalidRolloutError
from hat_serving.canary.health import Health
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.lease import LeaderLease
from hat_serving.canary.metrics import Prometheus, QueryMetrics, RegistryEvidence
from hat_serving.canary.observe import Observer
from hat_serving.canary.preflight import preflight
from hat_serving.canary.record import Recorder
from hat_serving.canary.spec import API_VERSION, GROUP, KIND, RESUME_ANNOTATION, RolloutSpec, read_spec
from hat_serving.canary.state import TERMINAL, SetWeight, State, from_status, to_status
from hat_serving.errors import RolloutError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger("hatstack.canary")
PLURAL = "canaryrollouts"
VERSION = API_VERSION.rpartition("/")[2]
LEASE = "hatstack-canary-controller"
FOLLOW_SECONDS = (0.25, 0.5, 0.75)
"""Waits between the further looks after weights were written; the next look of the timer comes `interval` later."""
CHECK_SECONDS = (1.0, 10.0)
"""Seconds until preflight is asked again about a rollout that it holds back: at first, and at most; they double."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What preflight said of a rollout, and when it is asked again."""

    said: str
    again: float
    """Reading of the monotonic clock."""
    wait: float


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller runs."""

    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty: all."""
    lease_namespace: str = "default"
    identity: str = ""
    """Name of this candidate; empty: host name and process id."""
    interval: float = 2.0
    """Seconds between two looks at one rollout."""
    lease_seconds: float = 15.0
    health_port: int = 8081
    """Port of `/healthz`; 0: none."""
    metrics_port: int = 9108
    """Prometheus endpoint; 0: none."""
    registry: str = ""
    """Address of the registry whose ledger is told; empty: none."""
    registry_token: str = field(default="", repr=False)


class Controller:
    """One replica."""

    def __init__(self, kube: Objects, settings: Settings) -> None:
        self._kube, self._settings = kube, settings
        self.registry = kopf.OperatorRegistry()
        self._observer = Observer(kube)
        self._recorder = Recorder(settings.registry, settings.registry_token) if settings.registry else None
        self._health = Health(0, 1.0)
        self._trouble: dict[str, str] = {}
        """Resource uid → what went wrong at the last look."""
        self._refused: dict[str, Refusal] = {}
        """Resource uid → preflight's last no."""
        kopf.on.login(registry=self.registry)(_login)
        kopf.on.startup(registry=self.registry)(self._configure)
        kopf.timer(GROUP, VERSION, PLURAL, registry=self.registry, interval=settings.interval, when=_open)(self._timer)
        kopf.on.delete(GROUP, VERSION, PLURAL, registry=self.registry)(self._delete)

    @property
    def collector(self) -> CollectorRegistry:
        """Metrics of this replica."""
        return self._observer.collector

    async def run(self, stop: asyncio.Event) -> bool:
        """Waits for the Lease, acts while it is held. True: told to stop; False: the Lease was lost."""
        async with Health(self._settings.health_port, self._settings.lease_seconds * 4) as self._health:
            return await self._run(stop)

    def close(self) -> None:
        """Tells the registry what is still waiting to be told."""
        if self._recorder is not None:
            self._recorder.close()

    async def _run(self, stop: asyncio.Event) -> bool:
        identity = self._settings.identity or f"{socket.gethostname()}-{os.getpid()}"
        lease = LeaderLease(self._kube, self._settings.lease_namespace, LEASE, identity, self._settings.lease_seconds)
        while not await self._held(lease):
            if await _stopped(stop, self._settings.lease_seconds / 5):
                return True
        operator_stop = threading.Event()
        operator = asyncio.create_task(self._operate(operator_stop))
        try:
            return await self._keep(lease, stop, operator)
        finally:
            operator_stop.set()
            await asyncio.gather(operator, return_exceptions=True)
            await asyncio.to_thread(self.close)
            if stop.is_set():
                await asyncio.to_thread(_quietly, lease.release)

    async def _keep(self, lease: LeaderLease, stop: asyncio.Event, operator: asyncio.Task[None]) -> bool:
        """Renews the Lease until it is told to stop or has not been able to for two thirds of its duration."""
        renewed = time.monotonic()
        while not await _stopped(stop, lease.duration / 5):
            if operator.done():
                # kopf takes SIGTERM for itself and ends; an error of its own is raised here.
                await operator
                stop.set()
                return True
            if await self._held(lease):
                renewed = time.monotonic()
            elif time.monotonic() - renewed > lease.duration * 2 / 3:
                return False
        return True

    async def _held(self, lease: LeaderLease) -> bool:
        self._health.beat()
        try:
            return await asyncio.to_thread(lease.step, time.monotonic())
        except ClusterError:
            return False

    async def _operate(self, stop: threading.Event) -> None:
        await kopf.operator(
            registry=self.registry,
            standalone=True,
            namespaces=self._settings.namespaces,
            clusterwide=not self._settings.namespaces,
            stop_flag=stop,
        )

    def _configure(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.finalizer = f"{GROUP}/canary"
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="seen")
        settings.posting.enabled = False
        settings.watching.server_timeout = 60
        settings.execution.max_workers = 8
        settings.scanning.disabled = True

    def _timer(self, name: str, namespace: str, **_: Any) -> None:
        """One look; after a change of weights some more, so that the new split is seen as soon as it is in force."""
        for wait in (0.0, *FOLLOW_SECONDS):
            time.sleep(wait)
            found = self._kube.get(API_VERSION, KIND, name, namespace)
            if found is None or found["metadata"].get("deletionTimestamp"):
                return
            done = self.look(found)
            if done is None or not any(isinstance(command, SetWeight) for command in done.commands):
                return

    def _delete(self, name: str, namespace: str, **_: Any) -> None:
        """An abort; the object is kept until the canary is gone."""
        found = self._kube.get(API_VERSION, KIND, name, namespace)
        if found is None or (found.get("status") or {}).get("phase", "Pending") in TERMINAL:
            return
        done = self.look(found, deleting=True)
        if done is not None and done.state.phase not in TERMINAL:
            raise kopf.TemporaryError(f"{name}: {done.trouble or done.state.message}", delay=self._settings.interval)

    def look(self, found: Manifest, *, deleting: bool = False) -> Look | None:
        """One look at one resource. None: its spec cannot be read, or another writer was faster."""
        metadata = found["metadata"]
        try:
            spec = read_spec(found["spec"])
            backend = backend_for(spec, self._kube, metadata["namespace"])
        except RolloutError as error:
            self._refuse(found, error)
            return None
        wishes = Wishes(
            paused=spec.paused,
            promote=spec.promote,
            abort=spec.abort or deleting,
            resume=(metadata.get("annotations") or {}).get(RESUME_ANNOTATION, ""),
        )
        before = from_status(found.get("status"))
        try:
            done = self._look(found, spec, before, backend, wishes)
        except ClusterError as error:
            # Deleting, a lost race is no end: the canary has not been taken back yet.
            if error.code == 404 or (error.code == 409 and not deleting):
                return None
            raise kopf.TemporaryError(str(error), delay=self._settings.interval) from error
        self._trouble[metadata["uid"]] = done.trouble
        if done.state.phase in TERMINAL:
            self._trouble.pop(metadata["uid"], None)
            self._refused.pop(metadata["uid"], None)
        if done.trouble:
            log.warning("%s/%s: %s", metadata["namespace"], metadata["name"], done.trouble)
        self._observer.record(found, spec, before, done)
        if self._recorder is not None:
            self._recorder.moved(metadata["namespace"], metadata["name"], spec, before, done.state)
        return done

    def _look(self, found: Manifest, spec: RolloutSpec, before: State, backend: TrafficBackend, wishes: Wishes) -> Look:
        metadata = found["metadata"]
        source = Prometheus(spec.prometheus.url, spec.prometheus.timeout) if spec.prometheus else None

        def check() -> str:
            """Reads much of the cluster, so a refusal is not asked for anew at every look.

            The wait doubles: accelerators of a pod that is just ending are free in a moment, other trouble lasts.
            """
            last = self._refused.pop(metadata["uid"], None)
            if last is None or time.monotonic() >= last.again:
                findings = preflight(spec, self._kube, metadata["namespace"], metadata["name"], source)
                said = "; ".join(str(finding) for finding in findings if finding.level == "error")
                wait = min(last.wait * 2, CHECK_SECONDS[1]) if last else CHECK_SECONDS[0]
                last = Refusal(said, time.monotonic() + wait, wait) if said else None
            if last is None:
                return ""
            self._refused[metadata["uid"]] = last
            return last.said

        def save(state: State) -> None:
            """Refused (409) when the resource has changed since it was read: that look is void."""
            generation = metadata["generation"]
            known = (found.get("status") or {}).get("conditions") or []
            wanted = to_status(state) | {
                "observedGeneration": generation,
                "stepCount": len(spec.steps),
                "conditions": conditions(state, known, generation, time.time()),
            }
            if wanted != {key: (found.get("status") or {}).get(key) for key in wanted}:
                change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
                self._kube.patch(API_VERSION, KIND, metadata["name"], metadata["namespace"], change, status=True)

        metrics = QueryMetrics(source, self._evidence(spec)) if spec.metrics else None
        note = self._trouble.get(metadata["uid"], "")
        return look(spec, before, backend, metrics, wishes=wishes, check=check, save=save, note=note)

    def _evidence(self, spec: RolloutSpec) -> RegistryEvidence | None:
        asked = spec.registry
        return RegistryEvidence(asked.url, asked.timeout, self._settings.registry_token) if asked else None

    def _refuse(self, found: Manifest, error: RolloutError) -> None:
        """A spec that cannot be carried out is said in the status; nothing is touched."""
        reason = "InvalidSpec" if isinstance(error, InvalidRolloutError) else "BackendUnusable"
        status = {"phase": "Pending", "reason": reason, "message": str(error)}
        old = found.get("status") or {}
        if {key: old.get(key) for key in status} != status:
            metadata = found["metadata"]
            self._kube.patch(
                API_VERSION, KIND, metadata["name"], metadata["namespace"], {"status": status}, status=True
            )


def _open(status: Any, **_: Any) -> bool:
    """Whether there is still something to do."""
    return status.get("phase", "Pending") not in TERMINAL


def _login(**details: Any) -> Any:
    """In a pod the service account, whose token rotates; else the kubeconfig."""
    return kopf.login_with_service_account(**details) or kopf.login_with_kubeconfig(**details)


def _quietly(release: Any) -> None:
    try:
        release()
    except ClusterError:
        return


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    """Waits; True as soon as `stop` is set."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
