"""The training pipeline with the smoke profile in real pods of Argo: started, watched and read from the console's pages."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from hat_console.app import ConsoleSettings
from hat_pipelines.desk import look
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_registry import accounts
from hat_registry.registry import Registry
from hat_serving.canary.kube import Kube
from hatstack import paths
from tests.cluster.controlplane import workflows as argo
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import until
from tests.console.conftest import Console, chromium, serve

pytestmark = [pytest.mark.cluster, pytest.mark.matrix, pytest.mark.timeout(1500)]
__all__ = ["chromium"]


@dataclass
class Place:
    """A console whose desk sends runs to Argo."""

    console: Console
    desk: Desk
    kube: Kube
    namespace: str


@pytest.fixture
def place(workflows: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name, value in argo.KEYS.items():
        monkeypatch.setenv(name, value)
    kube = Kube.from_kubeconfig(workflows.kubeconfig)
    made = kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "train-"}})
    namespace = made["metadata"]["name"]
    argo.prepare(kube.create, namespace)
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    text = paths.profile("smoke").read_text().replace("items: 3}", "items: 1}")  # every stage, and hardly any scores
    assert "branches: [opd, rl, mtp]" in text
    (profiles / "smoke.yaml").write_text(f"{text}cluster: {{service_account: workflow, parallel: 2}}\n")
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        accounts.create(tx, accounts.SYSTEM, "ed", password="ed-has-a-long-password")
        accounts.give(tx, accounts.SYSTEM, "ed", "editor")
    runs = tmp_path / "runs"
    remote = {
        "argo": str(workflows.kubeconfig), "argo_namespace": namespace, "s3_endpoint": workflows.s3,
        "s3_bucket": argo.BUCKET,
    }  # fmt: skip
    catalogue = Catalogue(profiles, paths.shipped("harnesses"))
    desk = Desk(registry.database, catalogue, Settings(root=runs, remote=remote))
    desk.start()
    server, thread, url = serve(registry, ConsoleSettings(session_key=b"k" * 32, runs=runs), desk)
    yield Place(Console(url, registry, ""), desk, kube, namespace)
    desk.stop()
    server.should_exit = True
    thread.join(20)
    registry.close()
    kube.delete("v1", "Namespace", namespace)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.set_default_timeout(15_000)
    yield context.new_page()
    context.close()


def process_of(cluster: Cluster, step: str) -> int:
    """The process that works on a step in a pod of this cluster, as this machine counts them."""
    wanted = f"hat_pipelines.pod\0--component\0{step}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:  # it has ended
            continue
        if wanted in line and b"argoexec" not in line and under(int(path.parent.name), cluster.process.pid):
            return int(path.parent.name)
    raise AssertionError(f"no process works on {step}")


def under(pid: int, ancestor: int) -> bool:
    """Whether a process comes from another one."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_a_smoke_training_on_argo_has_a_step_killed_and_ends_with_its_report(
    workflows: Cluster, place: Place, page: Page
) -> None:
    place.console.sign_in(page, "ed")
    page.goto(f"{place.console.url}/pipelines")
    page.locator("section.pipeline", has=page.locator("h2", has_text=re.compile("^train$"))).locator("button").click()
    page.fill("#name", "smoke-on-argo")
    page.select_option("#target", "argo")
    page.click("#start")
    expect(page.locator("#state")).to_have_text("running", timeout=120_000)
    log = place.desk.settings.root / "smoke-on-argo" / "steps" / "base" / "progress.jsonl"
    until(log.exists, "base trains", 600)
    os.kill(process_of(workflows, "base"), signal.SIGKILL)
    until(lambda: not place.desk.store.active(), "the run is over", 1200)
    found = look.detail(place.desk.settings.root, "smoke-on-argo")
    assert found["state"] == "done", {name["step"]: name["fault"] for name in found["steps_detail"] if name["fault"]}
    expect(page.locator("#state")).to_have_text("done")
    states = {one["step"]: one["state"] for one in found["steps_detail"]}
    assert set(states.values()) == {"done"}
    assert {f"{stage}-{arm}" for stage in ("sft", "opd", "rl", "mtp", "test") for arm in ("naive", "hsa")} < set(states)
    assert {one["step"]: one["tries"] for one in found["steps_detail"] if one["tries"] != 1} == {"base": 2}
    assert "base" in str(look.curves(place.desk.settings.root, "smoke-on-argo"))
    page.click("#report")
    expect(page.locator("h1").first).to_contain_text("Smoke run")
