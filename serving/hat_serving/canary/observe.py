"""What others see of a rollout: Kubernetes Events for people, metrics for dashboards. Nothing here is read back."""

from __future__ import annotations

import contextlib
import datetime

from hat_serving.canary.driver import Look
from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import API_VERSION, KIND, RolloutSpec
from hat_serving.canary.state import TERMINAL, State

WARNINGS = ("AnalysisFailed", "ProgressDeadlineExceeded", "CanaryNotReady", "Inconclusive", "AbortRequested")


class Observer:
    """Tells of changes, once each."""

    def __init__(self, kube: Objects) -> None:
        self._kube = kube
        from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

        self.collector = CollectorRegistry()
        ProcessCollector(registry=self.collector)
        names = ("workspace", "release")
        self._looks = Counter(
            "hatstack_canary_looks_total", "Looks at rollouts", [*names, "trouble"], registry=self.collector
        )
        texts = {
            "desired": ("hatstack_canary_desired_weight_percent", "Wanted share of the canary"),
            "effective": ("hatstack_canary_effective_weight_percent", "Share in force; -1: cannot be told"),
            "clock": (
                "hatstack_canary_clock_running_ratio",
                "1 while a step's clock runs, 0 while it waits or is paused",
            ),
        }
        self._gauges = {key: Gauge(*text, names, registry=self.collector) for key, text in texts.items()}

    def record(self, found: Manifest, spec: RolloutSpec, before: State, done: Look) -> None:
        """An Event when phase, step or reason changed; gauges at every look."""
        after = done.state
        self._measure(spec, done)
        if (before.phase, before.step, before.reason) == (after.phase, after.step, after.reason):
            return
        word = after.reason or after.phase
        count = len(spec.steps)
        step = (
            f"step {after.step + 1} of {count} ({spec.steps[after.step].describe()})"
            if after.step < count
            else "at the end"
        )
        text = f"{after.phase}, {step}" + (f": {after.message}" if after.message else "")
        self._event(found, word, text, "Warning" if after.reason in WARNINGS else "Normal")

    def _event(self, found: Manifest, reason: str, text: str, kind: str) -> None:
        metadata = found["metadata"]
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
            "eventTime": moment,
            "reportingController": "hatstack.dev/canary",
            "reportingInstance": "canary-controller",
            "action": "Look",
            "reason": reason[:128],
            "note": text[:1024],
            "type": kind,
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
        try:
            self._kube.create(event)
        except ClusterError:
            return

    def _measure(self, spec: RolloutSpec, done: Look) -> None:
        labels = (spec.workspace, spec.release)
        if done.state.phase in TERMINAL:
            for gauge in self._gauges.values():
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)
            return
        effective = done.state.effective_weight
        running = done.state.clock_started is not None and done.state.phase == "Progressing"
        self._gauges["desired"].labels(*labels).set(done.state.desired_weight)
        self._gauges["effective"].labels(*labels).set(-1 if effective is None else effective)
        self._gauges["clock"].labels(*labels).set(running)
        self._looks.labels(*labels, "yes" if done.trouble else "no").inc()
