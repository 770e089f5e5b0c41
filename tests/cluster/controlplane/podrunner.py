"""The node agent: every pod bound to one of its nodes runs as real processes behind a real address.

It watches pods, starts init containers in order (those with restartPolicy Always as sidecars), then all containers,
reports status on every change, stops gracefully and lets the API server forget a pod only when its processes are
gone. Jobs run to completion with real exit codes. Not here: resource limits, readiness gates.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.controlplane.api import STRATEGIC, Api, Manifest
from tests.cluster.controlplane.certs import POD_GATEWAY_IP
from tests.cluster.controlplane.errors import ApiError
from tests.cluster.controlplane.pods.claims import provision
from tests.cluster.controlplane.pods.containers import Container, Policy, now
from tests.cluster.controlplane.pods.network import Attachment, Network
from tests.cluster.controlplane.pods.sandbox import Sandbox
from tests.cluster.controlplane.pods.status import final_phase, pod_status, with_times
from tests.cluster.controlplane.pods.volumes import MissingReferenceError, prepare
from tests.cluster.controlplane.services import DNS_IP

NODES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "cpu-0": ({}, {"cpu": "64", "memory": "256Gi", "pods": "110"}),
    "h20-0": (
        {"nvidia.com/gpu.product": "NVIDIA-H20", "nvidia.com/gpu.present": "true"},
        {"cpu": "192", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
    ),
}
"""Node → its labels and its capacity. What is claimed is counted by the scheduler, not enforced."""
KUBELET_PORT = 10250
HEARTBEAT_SECONDS = 300.0


class PodRunner:
    """Runs the pods of all NODES until it is cancelled."""

    def __init__(self, api: Api, network: Network, folder: Path, *, backoff: float) -> None:
        self.api, self.network, self.folder, self.backoff = api, network, folder, backoff
        self.claims = folder / "claims"
        self._pods: dict[str, Pod] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Registers the nodes and follows the pods."""
        heart = asyncio.create_task(self._heartbeat())
        claims = asyncio.create_task(provision(self.api, self.claims))
        try:
            async for event in self.api.watch("/api/v1/pods", fieldSelector="spec.nodeName!="):
                if event[0] == "LIST":
                    present = {entry["metadata"]["uid"] for entry in event[1]}
                    for uid in self._pods.keys() - present:
                        self._begin(self._pods[uid].forget())
                    for entry in event[1]:
                        self._seen(entry)
                elif event[0] == "DELETED":
                    if pod := self._pods.get(event[1]["metadata"]["uid"]):
                        self._begin(pod.forget())
                else:
                    self._seen(event[1])
        finally:
            heart.cancel()
            claims.cancel()

    async def stop(self) -> None:
        """Ends every process at once."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _seen(self, manifest: Manifest) -> None:
        uid = manifest["metadata"]["uid"]
        if manifest["spec"].get("nodeName") not in NODES:
            return
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = Pod(self, manifest)
            if not manifest["metadata"].get("deletionTimestamp"):
                pod.task = self._begin(pod.run())
        if manifest["metadata"].get("deletionTimestamp") and not pod.leaving:
            pod.leaving = True
            self._begin(pod.leave(manifest["metadata"].get("deletionGracePeriodSeconds")))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            print(f"pod task failed: {error!r}", file=sys.stderr, flush=True)

    def drop(self, uid: str) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    async def _heartbeat(self) -> None:
        for name, (labels, _) in NODES.items():
            base = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": base | labels}}
            await self.api.apply(node)
        while True:
            for name, (_, capacity) in NODES.items():
                await self.api.request(
                    "PATCH", f"/api/v1/nodes/{name}/status", _node_status(capacity), content_type=STRATEGIC
                )
            await asyncio.sleep(HEARTBEAT_SECONDS)


class Pod:
    """One pod on one of the nodes."""

    def __init__(self, runner: PodRunner, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        self.manifest = manifest
        self.task: asyncio.Task[None] | None = None
        self.leaving = False
        self._runner = runner
        self._uid: str = metadata["uid"]
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._folder = runner.folder / "pods" / self._uid
        self._logs = runner.folder / "logs" / "pods" / f"{metadata['namespace']}_{metadata['name']}_{self._uid[:8]}"
        self._begun = now()
        self._inits: list[Container] = []
        self._mains: list[Container] = []
        self._sidecars: set[asyncio.Task[int]] = set()
        self._attachment: Attachment | None = None
        self._phase, self._initialized = "Pending", False
        self._sent: Manifest = {}

    async def run(self) -> None:
        """From the first folder to the last exit code."""
        sandbox = await self._prepare()
        spec = self.manifest["spec"]
        policy = spec.get("restartPolicy", "Always")
        once: Policy = "Never" if policy == "Never" else "OnFailure"
        self._inits = [
            Container(sandbox, entry, entry.get("restartPolicy") or once) for entry in spec.get("initContainers") or []
        ]
        self._mains = [Container(sandbox, entry, policy) for entry in spec["containers"]]
        reporter = asyncio.create_task(self._report(sandbox))
        try:
            async with asyncio.timeout(spec.get("activeDeadlineSeconds")):
                codes = await self._work()
            self._phase = final_phase(codes)
        except TimeoutError:
            await self._stop_all(None)
            self._phase = "Failed"
        finally:
            reporter.cancel()
            await self._clean()
        await self._send()

    async def leave(self, grace: float | None) -> None:
        """The API server wants the pod gone: stop what runs, show it, delete the object."""
        await self._stop_all(grace)
        if self.task is not None:
            await asyncio.wait({self.task}, timeout=2.0)  # the phase of a pod that has ended is told, as a kubelet does
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        with contextlib.suppress(ApiError):
            if self._mains:
                await self._send()
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
            await self._runner.api.request("DELETE", self._path, body)
        await self.forget()

    async def forget(self) -> None:
        """The object is gone already."""
        await self._stop_all(0)
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self._clean()
        self._runner.drop(self._uid)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _prepare(self) -> Sandbox:
        """Address and volumes; waits for ConfigMaps and Secrets that do not exist yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._attachment = await self._runner.network.attach()
        api = self._runner.api
        while True:
            try:
                volumes = await prepare(api, self.manifest, self._folder / "volumes", self._runner.claims)
                break
            except (MissingReferenceError, ApiError) as missing:
                await self._creating(str(missing))
                await asyncio.sleep(0.3)
        self.manifest["status"] = {
            **self.manifest.get("status", {}),
            "podIP": self._attachment.address,
            "hostIP": POD_GATEWAY_IP,
        }
        sandbox = Sandbox(
            api, self.manifest, self._folder, self._logs, self._attachment, volumes, backoff=self._runner.backoff
        )
        sandbox.resolver(DNS_IP)
        return sandbox

    async def _work(self) -> list[int]:
        for container in self._inits:
            if container.policy == "Always":
                self._sidecars.add(asyncio.create_task(container.run()))
                await container.up.wait()
            elif code := await container.run():
                return [code]
        self._initialized, self._phase = True, "Running"
        for container in self._mains:
            container.state = {"waiting": {"reason": "ContainerCreating"}}
        codes = await asyncio.gather(*(container.run() for container in self._mains))
        await asyncio.gather(*(entry.stop() for entry in self._inits if entry.policy == "Always"))
        return list(codes)

    async def _stop_all(self, grace: float | None) -> None:
        await asyncio.gather(*(entry.stop(grace) for entry in self._mains))
        await asyncio.gather(*(entry.stop(grace) for entry in self._inits))

    async def _clean(self) -> None:
        for task in self._sidecars:
            task.cancel()
        if self._attachment is not None:
            await self._runner.network.detach(self._attachment)

    async def _report(self, sandbox: Sandbox) -> None:
        """Sends the status whenever something changed; bursts become one message."""
        while True:
            await sandbox.changed.wait()
            sandbox.changed.clear()
            with contextlib.suppress(ApiError, aiohttp.ClientError):
                await self._send()

    async def _creating(self, message: str) -> None:
        waiting = {"waiting": {"reason": "ContainerCreating", "message": message}}
        entries = [
            {
                "name": entry["name"],
                "image": entry["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": waiting,
            }
            for entry in self.manifest["spec"]["containers"]
        ]
        await self._patch({"phase": "Pending", "startTime": self._begun, "containerStatuses": entries})

    async def _send(self) -> None:
        address = self._attachment.address if self._attachment else ""
        status = pod_status(
            address,
            POD_GATEWAY_IP,
            self._begun,
            self._inits,
            self._mains,
            phase=self._phase,
            initialized=self._initialized,
        )
        await self._patch(with_times(status, self._sent, now()))

    async def _patch(self, status: Manifest) -> None:
        """Patches the status when it differs from what was sent last. A pod that is gone needs none."""
        if json.dumps(status) == json.dumps(self._sent):
            return
        self._sent = json.loads(json.dumps(status))
        try:
            body = {"metadata": {"uid": self._uid}, "status": status}
            await self._runner.api.request("PATCH", f"{self._path}/status", body, content_type=STRATEGIC)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _node_status(capacity: dict[str, str]) -> Manifest:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": now(),
        "lastTransitionTime": now(),
    }
    return {
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        }
    }
