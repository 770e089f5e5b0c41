"""Argo Workflows by the Kubernetes API: what the controller reads and writes are its own resources.

Always holds: a workflow is over only in the phases Succeeded, Failed and Error; an empty phase and Pending are not. It
needs the rights to create, read, patch and delete workflows and to read pods and their logs. Not here: the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hat_harness.errors import Kind
from hat_pipelines.compiler import argo_manifest
from hat_pipelines.dag import ENTRY
from hat_pipelines.errors import RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.remote.engine import State, Status, StepState, StepStatus
from hat_pipelines.remote.store import Store
from hat_pipelines.train_job import API as TRAINER
from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Kube

API = "argoproj.io/v1alpha1"
PHASES: Mapping[str, State] = {"Succeeded": "done", "Failed": "failed", "Error": "failed", "Running": "running"}
STEP_PHASES: Mapping[str, StepState] = {
    "Succeeded": "done",
    "Failed": "failed",
    "Error": "failed",
    "Running": "running",
    "Skipped": "skipped",
    "Omitted": "skipped",
    "Daemoned": "running",
}
COMPLETED = "workflows.argoproj.io/completed"
WORKFLOW, NODE_NAME = "workflows.argoproj.io/workflow", "workflows.argoproj.io/node-name"
STUCK = ("CreateContainerConfigError", "CreateContainerError", "ErrImagePull", "ImagePullBackOff", "InvalidImageName")
"""Reasons for which a pod waits until somebody does something."""


class Argo:
    """The workflows of one namespace."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self.namespace = namespace

    @classmethod
    def connect(cls, where: str, namespace: str) -> Argo:
        """By a kubeconfig file, or `in-cluster` by the pod's service account."""
        try:
            kube = Kube.in_cluster() if where == "in-cluster" else Kube.from_kubeconfig(Path(where) if where else None)
        except Exception as error:  # the client library raises its own and OSErrors for whatever is wrong
            told = " ".join(str(error).split())[:200]
            raise RemoteError(f"no way to the cluster: {told}", kind="invalid_input", place=where) from None
        return cls(kube, namespace)

    def start_job(self, job: Job, name: str, store: Store, *, cron: str = "") -> None:
        """Bring the inputs to the repository and submit the job, or keep it as a CronWorkflow."""
        template = argo_manifest(job if self.trains(job) else alone(job))
        keys = {f"{one}-key": store.bring(brought.path, brought.digest) for one, brought in job.inputs.items()}
        if cron:
            self.put_cron(template, name, cron, keys)
        else:
            self.submit(template, name, keys)

    def trains(self, job: Job) -> bool:
        """Whether the job asks for TrainJobs and the cluster has Kubeflow Trainer v2."""
        if job.profile.cluster.train_jobs is None:
            return False
        try:
            self._kube.request("GET", f"/apis/{TRAINER}")
        except ClusterError as error:
            if error.code == 404:
                return False
            raise _translated(error) from None
        return True

    def submit(self, template: Mapping[str, Any], name: str, parameters: Mapping[str, str]) -> str:
        """Start a workflow from the content of a WorkflowTemplate. RemoteError of kind `conflict` for a taken name."""
        workflow = instance(template, name, self.namespace, parameters)
        return str(self._ask("create", workflow)["metadata"]["name"])

    def put_cron(self, template: Mapping[str, Any], name: str, cron: str, parameters: Mapping[str, str]) -> None:
        """Create or replace a CronWorkflow; one that comes due while its last run goes on is skipped."""
        self._put(cron_workflow(template, name, self.namespace, cron, parameters))

    def status(self, name: str) -> Status:
        """How far a workflow is, step by step; what keeps a pod from starting is said at its step."""
        found = self._workflow(name)
        steps = steps_of(found)
        stuck = self._stuck(name) if any(step.state == "running" for step in steps.values()) else {}
        for step, told in stuck.items():
            if step in steps:
                one = steps[step]
                steps[step] = StepStatus(one.state, one.tries, told, one.started, one.ended, one.output)
        return Status(name, state_of(found), str(found.get("status", {}).get("message", "")), steps, name)

    def logs(self, name: str, step: str) -> str:
        """The log of the step's newest pod."""
        pods = self._pods(name)
        mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get("hatstack.dev/step") == step]
        if not mine:
            return ""
        newest = max(mine, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
        path = self._kube.path("v1", "Pod", newest["metadata"]["name"], self.namespace)
        try:
            return str(self._kube.request("GET", f"{path}/log", container="main"))
        except ClusterError as error:
            if error.code in (400, 404):  # the container has not begun, or is gone
                return ""
            raise _translated(error) from None

    def cancel(self, name: str) -> bool:
        """Terminate it: running pods are ended at once; exit handlers still run."""
        found = self._workflow(name)
        if state_of(found) not in ("pending", "running"):
            return False
        self._patch(name, {"spec": {"shutdown": "Stop"}})
        return True

    def retry(self, name: str) -> None:
        """Put failed nodes and those that wait for them back, so that the controller runs them again."""
        found = self._workflow(name)
        if state_of(found) not in ("failed", "cancelled"):
            raise RemoteError(f"workflow {name} has neither failed nor been cancelled", kind="conflict", place=name)
        nodes, pods = revived(found)
        for pod in self._pods(name):
            if pod["metadata"].get("annotations", {}).get(NODE_NAME) in pods:
                self._kube.delete("v1", "Pod", pod["metadata"]["name"], self.namespace)
        found["status"] = {
            **found["status"], "phase": "Running", "message": "", "finishedAt": None, "nodes": nodes,
            "taskResultsCompletionStatus": {
                key: value for key, value in (found["status"].get("taskResultsCompletionStatus") or {}).items()
                if key in nodes
            },
        }  # fmt: skip
        labels = found["metadata"].setdefault("labels", {})
        labels.pop(COMPLETED, None)
        labels["workflows.argoproj.io/phase"] = "Running"
        found["spec"].pop("shutdown", None)
        self._replace(name, found)

    # ---- requests -------------------------------------------------------------------------------------------

    def _workflow(self, name: str) -> dict[str, Any]:
        try:
            found = self._kube.get(API, "Workflow", name, self.namespace)
        except ClusterError as error:
            raise _translated(error) from None
        if found is None:
            raise RemoteError(f"no workflow {name!r}", kind="invalid_input", place=self.namespace)
        return dict(found)

    def _pods(self, name: str) -> list[dict[str, Any]]:
        try:
            return self._kube.list("v1", "Pod", self.namespace, labelSelector=f"{WORKFLOW}={name}")
        except ClusterError as error:
            raise _translated(error) from None

    def _stuck(self, name: str) -> dict[str, str]:
        """Step → why its pod waits for somebody."""
        found: dict[str, str] = {}
        for pod in self._pods(name):
            step = pod["metadata"].get("labels", {}).get("hatstack.dev/step", "")
            status = pod.get("status", {})
            for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
                waiting = (one.get("state") or {}).get("waiting") or {}
                if waiting.get("reason") in STUCK:
                    found[step] = f"{waiting['reason']}: {waiting.get('message', '')}"
            for one in status.get("conditions") or ():
                if one.get("type") == "PodScheduled" and one.get("status") == "False":
                    found.setdefault(step, f"no node fits: {one.get('message', '')}")
        return found

    def _patch(self, name: str, change: Mapping[str, Any]) -> None:
        try:
            self._kube.patch(API, "Workflow", name, self.namespace, dict(change))
        except ClusterError as error:
            raise _translated(error) from None

    def _replace(self, name: str, workflow: Mapping[str, Any]) -> None:
        try:
            self._kube.request("PUT", self._kube.path(API, "Workflow", name, self.namespace), dict(workflow))
        except ClusterError as error:
            raise _translated(error) from None

    def _ask(self, verb: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(getattr(self._kube, verb)(dict(manifest)))
        except ClusterError as error:
            raise _translated(error) from None

    def _put(self, manifest: Mapping[str, Any]) -> None:
        self._ask("apply", manifest)


def alone(job: Job) -> Job:
    """The job with several processes in one pod, as where there is no Kubeflow Trainer."""
    cluster = job.profile.cluster.model_copy(update={"train_jobs": None})
    return replace(job, profile=job.profile.model_copy(update={"cluster": cluster}))


def instance(template: Mapping[str, Any], name: str, namespace: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """A Workflow with the content of a template, so that a later change of the template does not reach it."""
    metadata = template["metadata"]
    return {
        "apiVersion": API,
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**metadata.get("labels", {}), "hatstack.dev/pipeline": str(metadata["name"])},
            "annotations": dict(metadata.get("annotations", {})),
        },
        "spec": _filled(template["spec"], parameters),
    }


def cron_workflow(
    template: Mapping[str, Any], name: str, namespace: str, cron: str, parameters: Mapping[str, str]
) -> dict[str, Any]:
    """A CronWorkflow in UTC that never runs twice at a time."""
    return {
        "apiVersion": API,
        "kind": "CronWorkflow",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(template["metadata"].get("labels", {}))},
        "spec": {
            "schedules": [cron],
            "timezone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 300,
            "successfulJobsHistoryLimit": 5,
            "failedJobsHistoryLimit": 5,
            "workflowSpec": _filled(template["spec"], parameters),
        },
    }


def _filled(spec: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """A spec whose parameters all have values. RemoteError for one without, or for one that there is not."""
    known = [dict(one) for one in spec.get("arguments", {}).get("parameters", ())]
    names = {one["name"] for one in known}
    if unknown := sorted(set(parameters) - names):
        raise RemoteError(f"the pipeline has no parameter {unknown[0]!r}", kind="invalid_input", place="parameters")
    for one in known:
        if one["name"] in parameters:
            one["value"] = parameters[one["name"]]
        if "value" not in one:
            raise RemoteError(f"the parameter {one['name']!r} needs a value", kind="invalid_input", place="parameters")
    return {**spec, "arguments": {**spec.get("arguments", {}), "parameters": known}}


def state_of(workflow: Mapping[str, Any]) -> State:
    """The workflow's state; one that was stopped counts as cancelled."""
    state = PHASES.get(str(workflow.get("status", {}).get("phase", "")), "pending")
    if state == "failed" and workflow.get("spec", {}).get("shutdown"):
        return "cancelled"
    return state


def steps_of(workflow: Mapping[str, Any]) -> dict[str, StepStatus]:
    """Step → status, from the nodes of the DAG; a retried step is its Retry node."""
    nodes: Mapping[str, Mapping[str, Any]] = workflow.get("status", {}).get("nodes") or {}
    root = workflow["metadata"]["name"]
    found: dict[str, StepStatus] = {}
    for node in nodes.values():
        name = str(node.get("displayName", ""))
        if node.get("name") == f"{root}.{name}" and node.get("type") != "DAG":
            found[name] = _step(node, nodes)
        elif node.get("name") == f"{root}.onExit":
            found[str(node.get("templateName", "on-exit"))] = _step(node, nodes)
    return found


def _step(node: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> StepStatus:
    children = [nodes[key] for key in node.get("children") or () if key in nodes]
    tries = [one for one in children if one.get("type") == "Pod"] if node.get("type") == "Retry" else [node]
    state = STEP_PHASES.get(str(node.get("phase", "")), "waiting")
    outputs = (node.get("outputs") or {}).get("artifacts") or ()
    key = next((str((one.get("s3") or {}).get("key", "")) for one in outputs if one.get("name") == "out"), "")
    # of a step with retries the last try says what happened, the step itself only that there is none left
    told = str(next((one["message"] for one in reversed(tries) if one.get("message")), "") or node.get("message", ""))
    message = told if state == "failed" else ""  # of others it only says what every pod goes through
    return StepStatus(
        state, max(1, len(tries)), message, str(node.get("startedAt") or ""), str(node.get("finishedAt") or ""), key
    )


def revived(workflow: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The nodes to keep, with what led to a failure running again, and the names of the pods' nodes to run anew."""
    nodes: dict[str, dict[str, Any]] = {
        key: dict(node) for key, node in (workflow["status"].get("nodes") or {}).items()
    }
    kept: dict[str, Any] = {}
    again: set[str] = set()
    for key, node in nodes.items():
        good = node.get("phase") in ("Succeeded", "Skipped")
        entry = node.get("templateName") == ENTRY and node.get("type") == "DAG"
        if entry or node.get("id") == workflow["metadata"]["name"]:
            kept[key] = {**node, "phase": "Running", "message": "", "finishedAt": None}
        elif good and not str(node.get("name", "")).endswith(".onExit"):
            kept[key] = node
        elif node.get("type") == "Pod":
            again.add(str(node["name"]))
    for node in kept.values():
        if node.get("children"):
            node["children"] = [child for child in node["children"] if child in kept]
    return kept, again


def _translated(error: ClusterError) -> RemoteError:
    """What the API server said, with the way on."""
    refused: dict[int, Kind] = {401: "forbidden", 403: "forbidden", 409: "conflict"}
    cures = {
        401: "check the token of the kubeconfig",
        403: "the account needs rights on workflows and pods: see docs/pipelines.md",
        409: "choose another name",
        404: "is Argo Workflows installed?",
    }
    kind: Kind = refused.get(error.code, "invalid_input" if 400 <= error.code < 500 else "unavailable")
    return RemoteError(error.message, kind=kind, place=error.place, cure=cures.get(error.code, ""))
