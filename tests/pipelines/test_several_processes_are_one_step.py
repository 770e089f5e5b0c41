"""A step of several processes is one step: a TrainJob where there is Kubeflow Trainer, else torchrun's in one pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hat_components.runner import EXIT_CODES
from hat_pipelines import compiler, execute, train_job
from hat_pipelines.cluster import WAITING, command
from hat_pipelines.dag import Step
from hat_pipelines.errors import ProfileError, RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.pod import FAULT_MARK, read_arguments
from hat_pipelines.remote.argo import Argo
from hat_pipelines.runs import Fault, StepFolder, write_text
from hat_pipelines.train_job import TrainJob, Watch, manifests, perform
from hat_pipelines.worker import write_outcome
from hat_serving.canary.errors import ClusterError
from tests.pipelines.toys.pipelines import ADD, DRAW

ROOT = Path(__file__).resolve().parents[2]
FOUR = (
    "cluster.processes={add: 4}",
    "cluster.resources={add: {cpu: 2, memory_gib: 8, gpus: 1, gpu_product: NVIDIA-H20}}",
    "cluster.environment={MLFLOW_TRACKING_URI: http://mlflow}",
    "cluster.secrets=[{variable: KEY, name: keys, key: k}]",
)
TWO_NODES = "cluster.train_jobs={claim: shared, nodes: 2}"


def template(job: Job) -> dict[str, Any]:
    document = compiler.argo_manifest(job)
    found: dict[str, Any] = next(one for one in document["spec"]["templates"] if one["name"] == "add-hsa")
    return {**found["container"], "selector": found.get("nodeSelector"), "volumes": document["spec"].get("volumes")}


def source(job: Job) -> str:
    ir = next(yaml.safe_load_all(next(text for name, text in compiler.render(job.profile).items() if ".kfp." in name)))
    return str(ir["deploymentSpec"]["executors"]["exec-add-hsa"]["container"]["command"][-1])


def test_without_kubeflow_trainer_one_pod_has_them_all(make_job: Any) -> None:
    job = make_job(*FOUR)
    made = template(job)
    assert made["command"] == ["python", "-m", "hat_pipelines.pod", "--processes", "4"]
    assert made["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}
    assert ", processes=4)" in source(job)


def test_with_it_both_forms_wait_for_a_train_job(make_job: Any) -> None:
    job = make_job(*FOUR, TWO_NODES)
    made = template(job)
    assert made["command"][:4] == ["python", "-m", "hat_pipelines.train_job", "--job"]
    assert made["resources"]["limits"] == {"cpu": f"{WAITING.cpu:g}", "memory": f"{WAITING.memory_gib:g}Gi"}
    assert made["selector"] is None
    assert made["volumeMounts"] == [{"name": "claim-shared", "mountPath": "/hatstack/shared"}]
    assert {one["name"]: "valueFrom" in one for one in made["env"]} == {
        "MLFLOW_TRACKING_URI": False, "HATSTACK_POD_NAME": True, "HATSTACK_POD_UID": True,
    }  # fmt: skip
    wanted = TrainJob.model_validate_json(made["command"][4])
    assert f"job={made['command'][4]!r}" in source(job)
    runtime, asked = manifests(wanted, "add-1", "here", ["--component", ADD], {"kind": "Pod", "uid": "u"})
    trainer = asked["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2"}
    assert asked["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == "add-1"
    assert asked["metadata"]["ownerReferences"] == [{"kind": "Pod", "uid": "u"}]
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H20"}
    assert [one["name"] for one in pod["containers"][0]["env"]] == ["MLFLOW_TRACKING_URI", "KEY"]


def test_uneven_nodes_are_refused(make_job: Any) -> None:
    with pytest.raises(ProfileError) as caught:
        make_job("cluster.processes={add: 3}", TWO_NODES)
    assert "3 processes of add-naive are not the same number on each of 2 nodes" in str(caught.value)
    with pytest.raises(ProfileError) as caught:
        make_job("cluster.processes={ad: 3}")
    assert "did you mean 'add'" in str(caught.value)


class Cluster:
    """An API server that knows TrainJobs, or does not, and ends them with a verdict."""

    def __init__(self, *, trainer: bool = True, verdict: str = "Complete", outcome: Fault | None = None) -> None:
        self.trainer, self.verdict, self.outcome = trainer, verdict, outcome
        self.made: list[dict[str, Any]] = []

    def request(self, method: str, path: str, body: object = None, **query: str) -> Any:
        if path.endswith("/log"):
            return "hatstack-progress {}\nepoch 1\n"
        if not self.trainer:
            raise ClusterError(404, "the server could not find the requested resource")
        return {}

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.request("POST", "/")
        self.made.append(manifest)
        if manifest["kind"] == "TrainJob":
            given = read_arguments(manifest["spec"]["trainer"]["args"])
            given.out.mkdir()
            write_text(given.out / "result.json", "{}")
            assert {name: Path(place).exists() for name, (place, _) in given.inputs.items()} == {"numbers": True}
            if self.outcome:
                write_outcome(StepFolder(given.out).outcome, self.outcome)
        return manifest

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        return {"status": {"conditions": [{"type": self.verdict, "status": "True", "message": "over"}]}}

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        ended = {"terminated": {"exitCode": 0 if self.verdict == "Complete" else 1}}
        labels = {train_job.INDEX: "0"}
        status = {"phase": "Running", "containerStatuses": [{"state": ended}]}
        return [{"metadata": {"name": "p", "labels": labels}, "status": status}]

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        return True

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str:
        return f"/{kind}/{name}"


def run(cluster: Cluster, folder: Path) -> int:
    step = folder / "in"
    step.mkdir(exist_ok=True)
    write_text(step / "result.json", "{}")
    job = TrainJob.model_validate(
        {"step": "add", "image": "i", "nodes": 1, "processes": 2, "resources": {}, "claim": "shared"}
    )
    inputs = {"numbers": (str(step), "")}
    return perform(cluster, job, ADD, "{}", inputs, folder / "out", namespace="here", shared=folder / "shared")


def test_a_train_job_takes_inputs_and_gives_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Cluster(), tmp_path) == 0
    assert (tmp_path / "out" / "result.json").exists()
    assert list((tmp_path / "shared" / ".hatstack").iterdir()) == []
    assert "epoch 1" in capsys.readouterr().out


def test_a_failed_train_job_says_what_kind_of_fault_it_was(tmp_path: Path) -> None:
    away = Fault(kind="unavailable", message="another process was lost")
    assert run(Cluster(verdict="Failed", outcome=away), tmp_path) == 5
    assert run(Cluster(verdict="Failed"), tmp_path) == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(RemoteError, match="no Kubeflow Trainer v2") as caught:
        run(Cluster(trainer=False), tmp_path)
    assert "leave train_jobs out" in caught.value.cure
    memory = ended("0", 137, "OOMKilled")
    assert train_job.exit_code([memory], str) == 6
    assert train_job.exit_code([ended("0", 143), ended("1", 137)], str) == 143
    told = f"{FAULT_MARK}{away.model_dump_json()}\n"
    assert train_job.exit_code([ended("1", 1)], lambda pod: told) == 5
    assert train_job.exit_code([ended("1", 1), ended("0", 3)], lambda pod: "") == 3


def ended(index: str, code: int, reason: str = "Error") -> dict[str, Any]:
    """A pod of a TrainJob that is over."""
    over = {"terminated": {"exitCode": code, "reason": reason}}
    return {"metadata": {"labels": {train_job.INDEX: index}}, "status": {"containerStatuses": [{"state": over}]}}


def test_an_api_server_that_is_away_for_good_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    asked: list[float] = []

    def nobody(*_: object) -> dict[str, Any]:
        raise ClusterError(0, "no answer")

    monkeypatch.setattr(cluster, "get", nobody)
    with pytest.raises(RemoteError, match="no answer"):
        Watch(cluster, "here", "add-1", pause=asked.append).wait()
    assert sum(asked) == pytest.approx(train_job.AWAY_S)


@pytest.mark.parametrize(("there", "wanted"), [(True, "hat_pipelines.train_job"), (False, "hat_pipelines.pod")])
def test_where_it_is_missing_a_submitted_run_takes_one_pod(make_job: Any, there: bool, wanted: str) -> None:
    class Nothing:
        def bring(self, path: Path, digest: str) -> str:
            return "key"

    cluster = Cluster(trainer=there)
    engine = Argo(cluster, "here")  # type: ignore[arg-type]  # the few calls that submitting makes
    cluster.create = lambda manifest: cluster.made.append(manifest) or manifest  # type: ignore[method-assign]  # Workflows are always known
    engine.start_job(make_job(*FOUR, TWO_NODES), "one", Nothing())  # type: ignore[arg-type]  # only `bring` is called
    step = next(one for one in cluster.made[0]["spec"]["templates"] if one["name"] == "add-hsa")
    assert step["container"]["command"][2] == wanted


def test_torchrun_in_one_pod_writes_once_and_keeps_the_kind_of_a_fault(make_job: Any, tmp_path: Path) -> None:
    step = Step(name="draw", component=DRAW, artifacts=("numbers",), processes=2)
    argv = [sys.executable, *command(step, make_job().profile)[1:], "--component", DRAW, "--out", str(tmp_path / "out")]

    def begin(config: str) -> subprocess.CompletedProcess[str]:
        given = [*argv, "--config", config]
        return subprocess.run(given, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)

    done = begin("{}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "result.json").exists()
    assert done.stdout.count("hatstack-progress") == len((tmp_path / "out" / "progress.jsonl").read_text().splitlines())
    wrong = begin(json.dumps({"count": "many"}))
    assert wrong.returncode == EXIT_CODES["invalid_input"], wrong.stderr[-2000:]


def test_a_lost_peer_is_an_infrastructure_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1234")
    assert execute._peer_lost(lost) is None
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    fault = execute._peer_lost(lost)
    assert fault is not None
    assert fault.kind == "unavailable"
    assert execute._peer_lost(RuntimeError("shapes do not match")) is None
