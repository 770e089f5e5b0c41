"""Runs on Argo's own controller: followed from a desk as if they ran here; lost pods are tried again, failures resumed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_pipelines.compiler import argo_manifest
from hat_pipelines.desk import look
from hat_pipelines.desk.desk import Desk, Settings
from hat_pipelines.desk.order import Order
from hat_pipelines.desk.store import Ordered
from hat_pipelines.errors import RemoteError
from hat_pipelines.remote.argo import API, WORKFLOW, Argo
from hat_pipelines.remote.engine import wait
from hat_registry.store.database import Database
from hat_serving.canary.kube import Kube
from tests.cluster.controlplane import build
from tests.cluster.controlplane import workflows as argo
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import until
from tests.pipelines.desks import HOLDING, TOYS, catalogue

pytestmark = pytest.mark.cluster
PROFILE = """\
format: hatstack.profile/1
name: toy
pipeline: tests.pipelines.toys.pipelines
harness: small
arms: [naive, hsa]
cluster: {service_account: workflow, retries: 2}
"""


@pytest.fixture
def place(workflows: Cluster) -> Iterator[tuple[Kube, str]]:
    """A fresh namespace that may run workflows."""
    kube = Kube.from_kubeconfig(workflows.kubeconfig)
    made = kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "runs-"}})
    namespace = made["metadata"]["name"]
    argo.prepare(kube.create, namespace)
    yield kube, namespace
    kube.delete("v1", "Namespace", namespace)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that pods see too; those of runs that were killed go."""
    for old in build.cache_root().glob("shared-*-*"):
        if not Path("/proc", old.name.split("-")[1]).exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"shared-{os.getpid()}-", dir=build.cache_root()))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def desk(
    workflows: Cluster, place: tuple[Kube, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    for name, value in argo.KEYS.items():
        monkeypatch.setenv(name, value)
    known = catalogue(tmp_path)
    (tmp_path / "profiles" / "toy.yaml").write_text(PROFILE)
    remote = {
        "argo": str(workflows.kubeconfig),
        "argo_namespace": place[1],
        "s3_endpoint": workflows.s3,
        "s3_bucket": argo.BUCKET,
    }
    made = Desk(Database(f"sqlite:///{tmp_path}/desk.db"), known, Settings(root=tmp_path / "runs", remote=remote))
    made.start()
    yield made
    made.stop()


def now(desk: Desk, placed: Ordered) -> Ordered:
    found = desk.store.of_run(placed.run)
    assert found is not None
    return found


def over(desk: Desk, placed: Ordered, seconds: float = 240.0) -> Ordered:
    until(lambda: now(desk, placed).state not in ("queued", "running"), f"{placed.run} is over", seconds)
    return now(desk, placed)


def steps(desk: Desk, placed: Ordered) -> dict[str, Any]:
    if not (desk.settings.root / placed.run / "run.json").exists():
        return {}
    return {one["step"]: one for one in look.detail(desk.settings.root, placed.run)["steps_detail"]}


def reached(desk: Desk, placed: Ordered, fact: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    def seen() -> dict[str, Any] | None:
        found = steps(desk, placed)
        return found if found and fact(found) else None

    return until(seen, what, 120)


def uids(kube: Kube, namespace: str, step: str) -> set[str]:
    """The pods of a step that there are."""
    pods = kube.list("v1", "Pod", namespace, labelSelector=f"hatstack.dev/step={step}")
    return {pod["metadata"]["uid"] for pod in pods}


def held(shared: Path, **more: object) -> Order:
    values = {"steps.hold.release": str(shared / "release")}
    return Order.model_validate({"pipeline": HOLDING, "profile": "toy", "values": values, "target": "argo", **more})


def test_a_lost_pod_is_tried_again_and_the_run_is_like_a_local_one(
    desk: Desk, place: tuple[Kube, str], shared: Path
) -> None:
    kube, namespace = place
    placed = desk.place("default", "ada", held(shared, name="lost"))
    log = desk.settings.root / "lost" / "steps" / "hold" / "log.txt"
    until(lambda: log.exists() and "line 3" in log.read_text(), "the log arrives", 120)
    reached(desk, placed, lambda found: "loss" in found["hold"]["metrics"], "a curve arrives")
    (pod,) = kube.list("v1", "Pod", namespace, labelSelector="hatstack.dev/step=hold")
    kube.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    until(lambda: uids(kube, namespace, "hold") - {pod["metadata"]["uid"]}, "another pod", 120)
    (shared / "release").touch()
    assert over(desk, placed).state == "done"
    found = steps(desk, placed)
    assert {name: one["state"] for name, one in found.items()} == {"draw": "done", "hold": "done", "total": "done"}
    assert found["draw"]["metrics"]["count"] == 5
    assert look.curves(desk.settings.root, "lost")["loss"]["draw"]
    assert look.summary(desk.settings.root, look.find(desk.settings.root, "lost").record)["runner"] == "argo"


@pytest.mark.matrix
def test_what_was_cancelled_or_failed_is_run_again_and_the_rest_is_kept(
    desk: Desk, place: tuple[Kube, str], shared: Path
) -> None:
    kube, namespace = place
    values = {
        "steps.hold.release": str(shared / "release"),
        "steps.total.fail": "absent",
        "steps.total.marker": str(shared / "marker"),
        "cluster.retries": 0,
    }
    resumed = Order(pipeline=HOLDING, profile="toy", target="argo", resume="again")
    placed = desk.place("default", "ada", held(shared, name="again", values=values))
    log = desk.settings.root / "again" / "steps" / "hold" / "log.txt"
    until(lambda: log.exists() and "line 3" in log.read_text(), "the second step works", 120)
    drawn = kube.list("v1", "Pod", namespace, labelSelector="hatstack.dev/step=draw")
    assert desk.cancel(now(desk, placed))
    assert over(desk, placed).state == "cancelled"
    (shared / "release").touch()
    ended = over(desk, desk.place("default", "ada", resumed))
    assert ended.state == "failed"
    assert ended.fault is not None
    assert (ended.fault.kind, ended.fault.cure) == ("invalid_input", "make it")
    assert "the marker is absent" in ended.fault.message
    (shared / "marker").touch()
    assert over(desk, desk.place("default", "ada", resumed)).state == "done"
    assert {one["state"] for one in steps(desk, placed).values()} == {"done"}
    kept = kube.list("v1", "Pod", namespace, labelSelector="hatstack.dev/step=draw")
    assert [pod["metadata"]["uid"] for pod in kept] == [pod["metadata"]["uid"] for pod in drawn]


def test_a_missing_secret_is_told_and_the_run_can_be_cancelled(desk: Desk, shared: Path) -> None:
    secrets = [{"variable": "KEY", "name": "absent", "key": "k"}]
    placed = desk.place(
        "default",
        "ada",
        Order(pipeline=TOYS, profile="toy", target="argo", name="bare", values={"cluster.secrets": secrets}),
    )
    found = reached(desk, placed, lambda found: bool(found["draw"]["fault"]), "the fault")
    assert "absent" in found["draw"]["fault"]["message"]
    assert "secret" in found["draw"]["fault"]["cure"]
    assert desk.cancel(now(desk, placed))
    assert over(desk, placed).state == "cancelled"


@pytest.mark.matrix
def test_a_condition_that_does_not_hold_skips_on_argo_too(desk: Desk) -> None:
    order = Order(pipeline=TOYS, profile="toy", target="argo", name="small", values={"steps.draw.count": 1})
    placed = desk.place("default", "ada", order)
    assert over(desk, placed).state == "done"
    states = {name: one["state"] for name, one in steps(desk, placed).items()}
    assert states == {"draw": "done", "add-naive": "done", "add-hsa": "done", "total": "skipped"}


@pytest.mark.matrix
def test_a_schedule_on_the_cluster_never_runs_twice_at_a_time(
    desk: Desk, place: tuple[Kube, str], workflows: Cluster, shared: Path
) -> None:
    kube, namespace = place
    engine = Argo(kube, namespace)
    job = desk.catalogue.job(held(shared), desk.settings.root)
    from hat_pipelines.remote.store import Store

    store = Store(argo.BUCKET, workflows.s3)
    keys = {f"{name}-key": store.bring(one.path, one.digest) for name, one in job.inputs.items()}
    template = argo_manifest(job)
    with pytest.raises(RemoteError, match="no parameter 'nothing'"):
        engine.submit(template, "wrong", {**keys, "nothing": "1"})
    with pytest.raises(RemoteError, match="needs a value"):
        engine.submit(template, "wrong", {})
    engine.put_cron(template, "often", "@every 3s", keys)
    made = until(lambda: kube.list(API, "Workflow", namespace), "the schedule fires", 60)
    until(
        lambda: (kube.get(API, "CronWorkflow", "often", namespace) or {}).get("status", {}).get("active"), "active", 60
    )
    name = made[0]["metadata"]["name"]
    until(lambda: engine.logs(name, "hold"), "it runs", 120)
    assert len(kube.list(API, "Workflow", namespace)) == 1
    kube.patch(API, "CronWorkflow", "often", namespace, {"spec": {"suspend": True}})
    (shared / "release").touch()
    seen: list[str] = []
    assert wait(engine, name, timeout_s=120, seen=lambda status: seen.append(status.state)).state == "done"
    assert set(seen) <= {"pending", "running", "done"}
    assert not engine.cancel(name)
    pods = kube.list("v1", "Pod", namespace, labelSelector=f"{WORKFLOW}={name}")
    assert json.dumps(pods).count('"exitCode": 0') >= 3
