"""The canary controller over 200 rollouts on a real API server: CPU of a look, memory, and how soon a new split is seen.

Goals: under 50 ms of CPU a look, under 300 MB, desired → effective within 2 s, the cluster up from its snapshot in 8 s.
The rollouts split real HTTPRoutes that Traefik accepts, between Services with hand-written endpoints: pods are not
what is measured. Needs `make control-plane`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from typing import Any

from hat_serving.canary.kube import Kube, Manifest
from hat_serving.canary.spec import API_VERSION, KIND
from tests.cluster.controlplane.cluster import REPOSITORY, Cluster

ROLLOUTS, PORT, SECONDS = 200, 19108, 30.0
NAMESPACE = "default"
PARENT = {"name": "kserve-ingress-gateway", "namespace": "kserve"}
MS, MIB, SEEN_S, START_S = 50.0, 300.0, 2.0, 8.0


def scene(kube: Kube, number: int) -> list[Manifest]:
    """Two Services with an endpoint each, a route, and a rollout that rests at 50 %."""
    made: list[Manifest] = []
    for name in (f"old-{number}", f"new-{number}"):
        where = {"name": name, "namespace": NAMESPACE}
        made.append({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": {"ports": [{"port": 80}]}})
        labels = {"kubernetes.io/service-name": name}
        made.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**where, "labels": labels},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": True}}],
                "ports": [{"port": 80}],
            }
        )
    rules = [{"backendRefs": [{"name": f"old-{number}", "port": 80}]}]
    spec = {"parentRefs": [PARENT], "hostnames": [f"bench-{number}.test"], "rules": rules}
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "spec": spec}
    made.append({**route, "metadata": {"name": f"bench-{number}", "namespace": NAMESPACE}})
    target = {"backend": "httproute", "route": f"bench-{number}", "stableService": f"old-{number}"}
    steps: list[dict[str, Any]] = [{"setWeight": 10}, {"pause": {"duration": "1s"}}, {"setWeight": 50}, {"pause": {}}]
    wanted = {"release": f"r{number}", "target": {**target, "canaryService": f"new-{number}"}, "steps": steps}
    rollout = {"apiVersion": API_VERSION, "kind": KIND, "spec": {**wanted, "progressDeadline": "600s"}}
    made.append({**rollout, "metadata": {"name": f"bench-{number}", "namespace": NAMESPACE}})
    return made


def scraped(name: str) -> float:
    """The sum of a metric of the controller."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name) and "_created" not in line)


def resting(kube: Kube) -> list[Manifest]:
    """Rollouts that wait for a person."""
    return [entry for entry in kube.list(API_VERSION, KIND) if (entry.get("status") or {}).get("phase") == "Paused"]


def delays(kube: Kube) -> list[float]:
    """Seconds from the look that wanted the last weight to the look that saw it in force, per rollout."""
    found = []
    for entry in kube.list(API_VERSION, KIND):
        status = entry["status"]
        last = [window for window in status["windows"] if window["weight"] == 10]
        if last and status.get("matchedSince"):
            begun, seen = (
                datetime.fromisoformat(text.replace("Z", "+00:00"))
                for text in (last[-1]["ended"], status["matchedSince"])
            )
            found.append((seen - begun).total_seconds())
    return sorted(found)


def main() -> int:
    """Prints one JSON object; 1 when a goal is missed."""
    Cluster.start().stop()
    cluster = Cluster.start()
    kube = Kube.from_kubeconfig(cluster.kubeconfig)
    crd = REPOSITORY / "charts" / "hatstack" / "files" / "crds" / "canaryrollouts.yaml"
    import yaml

    kube.apply(yaml.safe_load(crd.read_text()))
    time.sleep(2)
    command = [
        sys.executable,
        "-m",
        "hat_serving.canary",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--metrics-port={PORT}",
    ]
    controller = subprocess.Popen([*command, "--health-port=18081", "--lease-seconds=15"], stderr=subprocess.DEVNULL)
    try:
        for number in range(ROLLOUTS):
            for manifest in scene(kube, number):
                kube.create(manifest)
        deadline = time.monotonic() + 240
        while len(resting(kube)) < ROLLOUTS and time.monotonic() < deadline:
            time.sleep(1)
        settled = len(resting(kube))
        cpu, looks = scraped("process_cpu_seconds_total"), scraped("hatstack_canary_looks_total")
        time.sleep(SECONDS)
        spent, done = scraped("process_cpu_seconds_total") - cpu, scraped("hatstack_canary_looks_total") - looks
        waited = delays(kube)
        result = {
            "rollouts": settled,
            "ms_cpu_a_look": round(1000 * spent / max(done, 1), 2),
            "looks_per_s": round(done / SECONDS, 1),
            "rss_mib": round(scraped("process_resident_memory_bytes") / 2**20, 1),
            "desired_to_effective_s": {
                "median": round(statistics.median(waited), 2),
                "p95": round(waited[int(0.95 * (len(waited) - 1))], 2),
            },
            "start_from_snapshot_s": cluster.seconds,
        }
    finally:
        controller.terminate()
        controller.wait(20)
        cluster.stop()
    print(json.dumps(result))
    missed = [
        settled < ROLLOUTS,
        result["ms_cpu_a_look"] > MS,
        result["rss_mib"] > MIB,
        result["desired_to_effective_s"]["median"] > SEEN_S,
        result["start_from_snapshot_s"] > START_S,
    ]
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
