"""Runs a step of several processes as a TrainJob of Kubeflow Trainer v2, from a pod that waits for it.

    python -m hat_pipelines.train_job --job '{…}' --component sft --config '{…}' --input base=/in/0:model --out /out

The pod that waits gets the step's inputs and gives its outputs like any other. They pass to and from the processes on a
volume that all of them mount. Each job brings a TrainingRuntime of its own, so that nothing of a cluster's runtimes
decides what runs; both belong to the pod and go with it. Always holds: the exit code says what kind of fault it was, and
a pod that is ended takes its job with it. Not here: when a step becomes a TrainJob (cluster), the processes (pod).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from hat_components.runner import EXIT_CODES
from hat_pipelines.dag import Resources, Secret, Volume
from hat_pipelines.errors import RemoteError
from hat_pipelines.pod import Inputs, arguments, fault_code, measure, read_arguments, split_log
from hat_pipelines.runs import StepFolder, write_text

API = "trainer.kubeflow.org/v1alpha1"
SHARED = "/hatstack/shared"
"""Where both sides mount the volume that they share."""
POD_NAME, POD_UID = "HATSTACK_POD_NAME", "HATSTACK_POD_UID"
OWN = {POD_NAME: "metadata.name", POD_UID: "metadata.uid"}
"""Variables of the waiting pod → fields of its own that they hold, so that the job can belong to it."""
NODE = "node"
"""Name of the replicated job and of its container: Kubeflow Trainer looks for it."""
JOBSET, INDEX = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-completion-index"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
POLL_S = 2.0
AWAY_S = 300.0
"""How long the API server may not answer before the wait is given up."""


class TrainJob(BaseModel):
    """What the job of one step is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    image: str
    nodes: int
    """Pods."""
    processes: int
    """Processes in each of them."""
    resources: Resources
    """What each pod asks for."""
    claim: str
    """Claim of the volume that is mounted at SHARED."""
    environment: dict[str, str] = {}
    secrets: tuple[Secret, ...] = ()
    volumes: tuple[Volume, ...] = ()
    account: str = ""


class Kube(Protocol):
    """What is needed of the Kubernetes API (hat_serving.canary.kube.Kube)."""

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Make it."""

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """The object, None when there is none."""

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        """All that the query names."""

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """False when it was not there."""

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str:
        """URL path of a resource."""

    def request(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The answer."""


def manifests(
    job: TrainJob, name: str, namespace: str, argv: Sequence[str], owner: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The TrainingRuntime and the TrainJob. `argv`: arguments of hat_pipelines.pod, with places on the shared volume."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/part-of": "hatstack", "hatstack.dev/train-job": job.step},
    }
    if owner:
        metadata["ownerReferences"] = [dict(owner)]
    replicated = {
        "name": NODE,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": _pod(job)}},
        },
    }
    runtime = {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            "mlPolicy": {"numNodes": job.nodes, "torch": {}},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [replicated]}},
        },
    }
    trainer = {
        "image": job.image,
        "command": ["python", "-m", "torch.distributed.run", "-m", "hat_pipelines.pod"],
        "args": list(argv),
        "numNodes": job.nodes,
        "numProcPerNode": job.processes,
        "resourcesPerNode": _asked(job.resources),
    }
    reference = {"apiGroup": API.partition("/")[0], "kind": "TrainingRuntime", "name": name}
    spec = {"runtimeRef": reference, "trainer": trainer}
    return [runtime, {"apiVersion": API, "kind": "TrainJob", "metadata": metadata, "spec": spec}]


def _pod(job: TrainJob) -> dict[str, Any]:
    claims = [Volume(claim=job.claim, path=SHARED), *job.volumes]
    plain: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in job.environment.items()]
    secret = [
        {"name": one.variable, "valueFrom": {"secretKeyRef": {"name": one.name, "key": one.key}}} for one in job.secrets
    ]
    container = {
        "name": NODE,
        "image": job.image,
        "env": [*plain, *secret],
        "volumeMounts": [
            {"name": f"claim-{one.claim}", "mountPath": one.path, **({"readOnly": True} if one.read_only else {})}
            for one in claims
        ],
    }
    names = dict.fromkeys(one.claim for one in claims)
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": f"claim-{name}", "persistentVolumeClaim": {"claimName": name}} for name in names],
    }
    if job.resources.selector:
        spec["nodeSelector"] = job.resources.selector
    if job.resources.tolerations:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in job.resources.tolerations]
    if job.account:
        spec["serviceAccountName"] = job.account
    return spec


def _asked(asked: Resources) -> dict[str, Any]:
    """Requests that equal limits."""
    amounts = {"cpu": f"{asked.cpu:g}", "memory": f"{asked.memory_gib:g}Gi"}
    if asked.gpus:
        amounts["nvidia.com/gpu"] = str(asked.gpus)
    return {"requests": amounts, "limits": amounts}


def unique_name(step: str, uid: str) -> str:
    """A name that no other try of the step has: pods of the job are called after it, and must stay below 63 letters."""
    return f"{step[:28].rstrip('-')}-{hashlib.sha256((uid or uuid.uuid4().hex).encode()).hexdigest()[:10]}"


def perform(
    kube: Kube, job: TrainJob, component: str, config: str, inputs: Inputs, out: Path, *, namespace: str, shared: Path
) -> int:
    """Run the step to its end; returns the exit code. Raises RemoteError when the cluster has no Kubeflow Trainer."""
    uid = os.environ.get(POD_UID, "")
    name = unique_name(job.step, uid)
    folder = shared / ".hatstack" / name
    owner = {"apiVersion": "v1", "kind": "Pod", "name": os.environ.get(POD_NAME, ""), "uid": uid} if uid else None
    try:
        there = {one: (str(_copy(Path(source), folder / "in" / one)), part) for one, (source, part) in inputs.items()}
        for manifest in manifests(job, name, namespace, arguments(component, config, there, folder / "out"), owner):
            _create(kube, manifest)
        watch = Watch(kube, namespace, name)
        try:
            code = watch.wait()
        except BaseException:
            kube.delete(API, "TrainJob", name, namespace)
            raise
        if code:
            return fault_code(StepFolder(folder / "out"), code)
        shutil.copytree(folder / "out", out, dirs_exist_ok=True)
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target


def _create(kube: Kube, manifest: dict[str, Any]) -> None:
    from hat_serving.canary.errors import ClusterError

    try:
        kube.create(manifest)
    except ClusterError as error:
        if error.code == 404:
            raise RemoteError(
                "this cluster has no Kubeflow Trainer v2",
                kind="invalid_input",
                place="cluster.train_jobs",
                cure="install it, or leave train_jobs out: the processes then share one pod",
            ) from None
        kind = "forbidden" if error.code in (401, 403) else "unavailable" if error.code in (0, 429) else "invalid_input"
        raise RemoteError(
            error.message,
            kind="unavailable" if error.code >= 500 else kind,  # type: ignore[arg-type]  # three literals of Kind
            place=error.place,
            cure="the account of the steps needs rights on trainjobs and trainingruntimes: see docs/pipelines.md",
        ) from None


class Watch:
    """Waits for one TrainJob and repeats what its first process writes."""

    def __init__(self, kube: Kube, namespace: str, name: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._kube, self._namespace, self._name, self._pause = kube, namespace, name, pause
        self._written = 0
        self._told = ""

    def wait(self) -> int:
        """0, or an exit code for a job that failed."""
        from hat_serving.canary.errors import ClusterError

        away = 0.0
        while True:
            try:
                found = self._kube.get(API, "TrainJob", self._name, self._namespace)
                if found is None:
                    raise RemoteError(f"the TrainJob {self._name} was deleted", place=self._namespace)
                pods = self._kube.list("v1", "Pod", self._namespace, labelSelector=f"{JOBSET}={self._name}")
                self._relay(pods)
                self._tell(pods)
                state = verdict(found)
                away = 0.0
            except ClusterError as error:
                away += POLL_S
                if 400 <= error.code < 500 or away > AWAY_S:
                    raise RemoteError(error.message, place=error.place, cure="see the cluster's API server") from None
                state = ""
            if state == "Complete":
                return 0
            if state:
                sys.stderr.write(f"TrainJob {self._name}: {state}\n")
                return exit_code(pods, self._log)
            self._pause(POLL_S)

    def _relay(self, pods: Sequence[Mapping[str, Any]]) -> None:
        first = [pod for pod in pods if pod["metadata"].get("labels", {}).get(INDEX) == "0"]
        if not first or first[0].get("status", {}).get("phase") in (None, "Pending"):
            return
        text = self._log(first[0])
        whole = text[: text.rfind("\n") + 1]
        if self._written > len(whole):  # it was rotated
            self._written = 0
        sys.stdout.write(whole[self._written :])
        sys.stdout.flush()
        self._written = len(whole)

    def _log(self, pod: Mapping[str, Any]) -> str:
        """What the pod has written; "" where that cannot be had: its verdict does not wait for it."""
        from hat_serving.canary.errors import ClusterError

        path = self._kube.path("v1", "Pod", pod["metadata"]["name"], self._namespace)
        try:
            return str(self._kube.request("GET", f"{path}/log", container=NODE))
        except ClusterError:
            return ""

    def _tell(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """Say once why pods do not start."""
        told = "\n".join(sorted(filter(None, map(waits_for, pods))))
        if told and told != self._told:
            sys.stderr.write(f"TrainJob {self._name} waits: {told}\n")
            sys.stderr.flush()
        self._told = told


def verdict(found: Mapping[str, Any]) -> str:
    """`Complete`, what failed, or "" while it goes on."""
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("status") == "True" and one.get("type") == "Complete":
            return "Complete"
        if one.get("status") == "True" and one.get("type") == "Failed":
            return str(one.get("message") or one.get("reason") or "failed")
    return ""


def exit_code(pods: Sequence[Mapping[str, Any]], log: Callable[[Mapping[str, Any]], str]) -> int:
    """Exit code of a job whose first process left no word of its end: what the first pod that ended by itself says in
    its log, else the code of its container. 143, which is tried again, when all were ended from outside or are gone."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("labels", {}).get(INDEX, ""))):
        for one in (pod.get("status") or {}).get("containerStatuses") or ():
            over = (one.get("state") or {}).get("terminated") or {}
            if over.get("reason") == "OOMKilled":
                return EXIT_CODES["exhausted"]
            code = int(over.get("exitCode") or 0)
            if code not in (0, 137, 143):
                fault = split_log(log(pod))[2]
                return EXIT_CODES[fault.kind] if fault else code
    return 143


def waits_for(pod: Mapping[str, Any]) -> str:
    """Why a pod does not start, "" when it does."""
    status = pod.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"no node fits: {one.get('message', '')}"
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason', '')}: {waiting['message']}"
    return ""


def _ended(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the pod that waits."""
    parser = argparse.ArgumentParser(
        prog="python -m hat_pipelines.train_job", description="Run one step as a TrainJob."
    )
    parser.add_argument("--job", required=True, help="the job as JSON")
    given, rest = parser.parse_known_args(argv)
    step = read_arguments(rest)
    signal.signal(signal.SIGTERM, _ended)
    job = TrainJob.model_validate_json(given.job)
    return run(
        job, step.component, step.config, step.inputs, step.out, metric=step.metric, metric_file=step.metric_file
    )


def run(
    job: TrainJob, component: str, config: str, inputs: Inputs, out: Path, *, metric: str = "",
    metric_file: Path | None = None,
) -> int:  # fmt: skip
    """Run the step as a TrainJob of the cluster that this pod is in; returns the exit code."""
    from hat_serving.canary.kube import Kube as Client

    namespace = NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    try:
        code = perform(
            Client.in_cluster(), job, component, config, inputs, out, namespace=namespace, shared=Path(SHARED)
        )
    except RemoteError as error:
        sys.stderr.write(f"step {component} failed: {error}\n")
        return EXIT_CODES[error.kind]
    if not code and metric and metric_file is not None:
        write_text(metric_file, repr(measure(out, metric)))
    return code


if __name__ == "__main__":
    sys.exit(main())
