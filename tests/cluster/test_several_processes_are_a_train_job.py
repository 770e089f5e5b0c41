"""A step of two processes on Kubeflow Trainer's real controller: two pods train one model as one process would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_pipelines.desk import look
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_pipelines.desk.order import Order
from hat_pipelines.train_job import API, INDEX, JOBSET
from hat_registry.store.database import Database
from hat_serving.canary.kube import Kube
from hatstack import paths
from tests.cluster.controlplane import trainer_build, training
from tests.cluster.controlplane import workflows as argo
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.controlplane.errors import ControlPlaneError
from tests.cluster.helpers import until

pytestmark = [pytest.mark.cluster, pytest.mark.matrix, pytest.mark.timeout(900)]
TOGETHER = "tests.pipelines.toys.together"
PROFILE = f"""\
format: hatstack.profile/1
name: together
pipeline: {TOGETHER}
harness: live-commerce
local: {{threads: 1, parallel: 1}}
cluster: {{service_account: workflow, retries: 1, train_jobs: {{claim: shared, nodes: 2}}}}
steps:
  simulate: {{train: 24, dev: 3, test: 3, evolve: 3, turns: 2}}
  base:
    corpus_items: 30
    tokenizer: {{vocab_size: 1024}}
    model: {{hidden: 96, layers: 2, heads: 3, kv_heads: 3, feed_forward: 256}}
    copying: {{tokens: 8000}}
    lookup: {{tokens: 8000}}
    mixed: {{tokens: 16000, checkpoint_every: 0}}
"""
RIGHTS = [
    {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs", "trainingruntimes"],
     "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
]  # fmt: skip
"""What docs/pipelines.md asks for the account of the steps, beside Argo's own."""


@pytest.fixture(scope="module")
def trainer(workflows: Cluster) -> Cluster:
    """The cluster with Kubeflow Trainer's and JobSet's controllers."""
    why = ""
    try:
        training.install(Kube.from_kubeconfig(workflows.kubeconfig), trainer_build.folder(), until)
    except ControlPlaneError as error:
        why = str(error)
    if why:
        pytest.fail(why, pytrace=False)
    return workflows


@pytest.fixture
def place(trainer: Cluster) -> Iterator[tuple[Kube, str]]:
    """A fresh namespace whose steps may ask for TrainJobs and share a volume with them."""
    kube = Kube.from_kubeconfig(trainer.kubeconfig)
    namespace = kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "jobs-"}})[
        "metadata"
    ]["name"]
    argo.prepare(kube.create, namespace)
    kube.patch("rbac.authorization.k8s.io/v1", "Role", argo.ACCOUNT, namespace, {"rules": [*argo.ROLE, *RIGHTS]})
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "shared", "namespace": namespace}
    kube.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    yield kube, namespace
    kube.delete("v1", "Namespace", namespace)


@pytest.fixture
def desk(trainer: Cluster, place: tuple[Kube, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name, value in argo.KEYS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "together.yaml").write_text(PROFILE)
    known = Catalogue(tmp_path / "profiles", paths.shipped("harnesses"), (TOGETHER,))
    remote = {
        "argo": str(trainer.kubeconfig),
        "argo_namespace": place[1],
        "s3_endpoint": trainer.s3,
        "s3_bucket": argo.BUCKET,
    }
    made = Desk(Database(f"sqlite:///{tmp_path}/desk.db"), known, Settings(root=tmp_path / "runs", remote=remote))
    made.start()
    yield made
    made.stop()


def pods(kube: Kube, namespace: str) -> dict[str, dict[str, Any]]:
    """The pods of TrainJobs by job and index."""
    found = kube.list("v1", "Pod", namespace, labelSelector=JOBSET)
    return {f"{pod['metadata']['labels'][JOBSET]}/{pod['metadata']['labels'][INDEX]}": pod for pod in found}


def test_two_pods_train_as_one_process_and_a_lost_one_is_tried_again(desk: Desk, place: tuple[Kube, str]) -> None:
    kube, namespace = place
    alone = Order(pipeline=TOGETHER, profile="together", name="alone")
    spread = Order(pipeline=TOGETHER, profile="together", name="spread", target="argo")
    desk.place("default", "ada", spread)
    log = desk.settings.root / "spread" / "steps" / "base" / "progress.jsonl"
    until(lambda: log.exists() and "loss" in log.read_text(), "both train", 240)
    before = pods(kube, namespace)
    assert sorted(key.partition("/")[2] for key in before) == ["0", "1"]
    lost = next(pod for key, pod in before.items() if key.endswith("/1"))["metadata"]
    path = kube.path("v1", "Pod", lost["name"], namespace)
    kube.request("DELETE", path, {"gracePeriodSeconds": 0})
    until(lambda: len({key.partition("/")[0] for key in pods(kube, namespace)} - {next(iter(before)).partition("/")[0]}) == 1,
          "another TrainJob", 120)  # fmt: skip
    until(lambda: not desk.store.active(), "the run is over", 400)
    found = look.detail(desk.settings.root, "spread")
    assert found["state"] == "done", [one["fault"] for one in found["steps_detail"] if one["fault"]]
    tries = {one["step"]: one["tries"] for one in found["steps_detail"]}
    assert tries["base"] == 2
    jobs = kube.list(API, "TrainJob", namespace)
    assert sorted(one["type"] for job in jobs for one in job["status"]["conditions"] if one["status"] == "True") == [
        "Complete",
        "Failed",
    ]
    desk.place("default", "ada", alone)
    until(lambda: not desk.store.active(), "the run on this machine is over", 240)
    one, two = (look.curves(desk.settings.root, run) for run in ("alone", "spread"))
    name = next(curve for curve in one if "loss" in curve)
    last = {run: curves[name]["base"][-1] for run, curves in (("alone", one), ("spread", two))}
    assert last["spread"] == pytest.approx(last["alone"], rel=1e-3)
