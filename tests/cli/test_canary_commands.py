"""`hat canary` writes wishes and shows what is; in a folder it works without a cluster, up to the end of a rollout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hat_serving.canary.backends import Reading
from hat_serving.canary.backends.gateway import Gateway
from hat_serving.canary.controller import Controller, Settings
from hat_serving.canary.folder import Folder
from hat_serving.canary.spec import API_VERSION, KIND, read_spec
from hat_serving.canary.watch import once
from hatstack.cli import canary

Hat = Callable[..., Any]
GATEWAY = ("--gateway", "http://127.0.0.1:8710", "--deployment", "live", "--harness", "live@next")


class Arms:
    """A gateway's administration that obeys."""

    def __init__(self) -> None:
        self.percent, self.known, self.adopted = 0, False, False

    def split(self) -> Reading:
        return Reading(self.percent, self.known, promoted=self.adopted, retired=not self.known)

    def set_split(self, percent: int) -> None:
        self.percent = percent

    def start_arm(self) -> None:
        self.known = True

    def adopt(self) -> None:
        self.adopted = True

    def drop_arm(self) -> None:
        self.known = False


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Arms:
    made = Arms()
    monkeypatch.setattr("hat_serving.canary.controller.backend_for", lambda spec, kube, namespace: Gateway(made))
    return made


def looks(root: Path, count: int = 6) -> None:
    folder = Folder(root)
    controller = Controller(folder, Settings())
    for _ in range(count):
        once(controller, folder)


def manifest(hat: Hat, path: Path, *more: str) -> Path:
    argv = ("canary", "render", "chat-v8", "--release", "r8", *GATEWAY, "--steps", "10,50")
    done = hat(*argv, "--pause", "1h", *more)
    assert done.code == 0, done.err
    path.write_text(done.out)
    return path


def test_what_render_writes_is_a_rollout_that_start_takes(hat: Hat, tmp_path: Path) -> None:
    found = yaml.safe_load(manifest(hat, tmp_path / "r.yaml").read_text())
    spec = read_spec(found["spec"])
    assert [step.describe() for step in spec.steps] == ["setWeight 10", "pause 3600s", "setWeight 50", "pause 3600s"]
    argv = ("canary", "start", tmp_path / "r.yaml", "--rollouts", tmp_path / "f", "--output=json")
    assert hat(*argv, "--dry-run").json()["changed"] is False
    ways = hat(*argv, "--dry-run").json()["ways_back"]
    assert [way["how"] for way in ways] == ["abort", "a rollout of the old version"]
    assert not (tmp_path / "f" / "default").exists()
    assert hat(*argv).json() == {"name": "chat-v8", "namespace": "default", "changed": True, "ways_back": ways}
    assert hat(*argv).json()["changed"] is False


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_every_gate_makes_a_metric_that_fits_the_rollout(hat: Hat, engine: str) -> None:
    from hat_serving.canary.presets import BOUNDS

    argv = ["canary", "render", "chat-v8", "--release", "r8", "--service", "chat", "--stable", "v7", "--engine", engine]
    argv += ["--uri", "s3://models/v8", "--prometheus", "http://p", *(f"--gate={name}" for name in BOUNDS)]
    done = hat(*argv, "--arg=--context-length=4096", "--output=json")
    spec = read_spec(done.json()["spec"])
    assert {metric.name for metric in spec.metrics} == set(BOUNDS)
    assert (spec.arms.stable, spec.arms.canary) == ("chat-v7-predictor", "chat-v8-predictor")
    assert done.json()["spec"]["target"]["canary"]["patch"] == {"model": {"args": ["--context-length=4096"]}}


def test_gates_ask_for_metrics_that_the_gateway_and_the_engine_have() -> None:
    from hat_serving.canary.presets import BOUNDS, gate
    from hat_serving.engine import metrics as engine
    from hat_serving.gateway.metrics import Metrics

    asked = json.dumps([gate(name) for name in BOUNDS])
    exported = {sample.name for family in Metrics().collector.collect() for sample in [family]}
    ours = {name.removesuffix("_total").removesuffix("_bucket") for name in re.findall(r"hatstack_[a-z_]+", asked)}
    assert ours <= exported
    source = Path(engine.__file__).read_text()
    for name in set(re.findall(r"sglang:([a-z_]+)", asked)):
        assert name.removesuffix("_bucket") in source, name


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gate=nothing", "--prometheus=http://p"], "no gate is called"),
        (["--gate=first-token=soon", "--prometheus=http://p"], "is no number"),
        (["--gate=errors"], "metrics need prometheus.url"),
        (["--steps=50,10"], "weights never go down"),
        (["--steps=ten"], "are no weights"),
        (["--service=chat"], "one of --service, --member and --gateway"),
        (["--engine=other"], "no engine is called"),
        (["--harness="], "that differs"),
    ],
)
def test_what_cannot_be_a_rollout_is_refused_in_words(hat: Hat, more: list[str], said: str) -> None:
    done = hat("canary", "render", "chat-v8", "--release", "r8", *GATEWAY, *more)
    assert done.code == (2 if said.startswith("one of") else 3), done.err
    assert said in done.err


def test_a_member_takes_over_from_the_one_that_serves(hat: Hat) -> None:
    argv = ("canary", "render", "chat-v8", "--release", "r8", "--member", "llm-new")
    assert "--stable with --member" in hat(*argv).err
    done = hat(*argv, "--stable", "llm-old", "--output=json")
    target = read_spec(done.json()["spec"]).target
    assert target.model_dump() == {"backend": "llmisvc", "stable": "llm-old", "canary_member": "llm-new"}


def test_an_alias_is_no_uri_of_weights(hat: Hat) -> None:
    done = hat("canary", "render", "c-v8", "--release=r", "--service=chat", "--uri=models:/chat@best")
    assert done.code == 3
    assert "no concrete URI" in done.err


@pytest.mark.parametrize("text", ["", "a: [", "kind: Pod", "kind: CanaryRollout\nmetadata: {name: x}", "- 1"])
def test_a_file_that_is_no_rollout_is_refused(hat: Hat, tmp_path: Path, text: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    assert hat("canary", "start", tmp_path / "r.yaml", "--rollouts", tmp_path / "f").code == 3
    assert hat("canary", "start", tmp_path / "none.yaml", "--rollouts", tmp_path / "f").code == 3


def test_without_a_cluster_the_cure_is_named(hat: Hat, tmp_path: Path) -> None:
    done = hat("canary", "status", "--kubeconfig", tmp_path / "none", "--output=json")
    assert done.code == 2
    assert "--rollouts" in done.error()["cure"]
    other = hat("doctor", "cluster", "--kubeconfig", tmp_path / "none", "--output=json")
    assert other.code == 2


def test_promote_skips_the_pauses_and_ends_the_rollout(hat: Hat, tmp_path: Path, arms: Arms) -> None:
    root = tmp_path / "f"
    there = ("--rollouts", root)
    hat("canary", "start", manifest(hat, tmp_path / "r.yaml"), *there)
    looks(root)
    shown = hat("canary", "status", "chat-v8", *there, "--output=json").json()
    assert (shown["phase"], shown["step"], shown["effective_weight"]) == ("Progressing", 1, 10)
    assert "> 2. pause 3600s" in hat("canary", "status", "chat-v8", *there).out
    assert hat("canary", "promote", "chat-v8", *there, "--dry-run", "--output=json").json()["changed"] is False
    looks(root)
    assert arms.percent == 10
    assert hat("canary", "promote", "chat-v8", *there, "--output=json").json()["changed"] is True
    looks(root, 10)
    assert hat("canary", "status", "chat-v8", *there, "--output=json").json()["phase"] == "Healthy"
    assert (arms.percent, arms.adopted) == (100, True)
    again = hat("canary", "abort", "chat-v8", *there, "--output=json")
    assert (again.code, again.error()["kind"]) == (4, "conflict")


def test_pause_holds_and_resume_goes_on(hat: Hat, tmp_path: Path, arms: Arms) -> None:
    root = tmp_path / "f"
    there = ("--rollouts", root)
    hat("canary", "start", manifest(hat, tmp_path / "r.yaml"), *there)
    looks(root)
    assert hat("canary", "pause", "chat-v8", *there, "--output=json").json()["changed"] is True
    assert hat("canary", "pause", "chat-v8", *there, "--output=json").json()["changed"] is False
    looks(root, 2)
    assert hat("canary", "status", *there, "--output=json").json()[0]["phase"] == "Paused"
    assert "chat-v8" in hat("canary", "status", *there).out
    hat("canary", "resume", "chat-v8", *there)
    looks(root, 2)
    assert hat("canary", "status", *there, "--output=json").json()[0]["phase"] == "Progressing"


def test_abort_gives_everything_back_and_tells_of_it(hat: Hat, tmp_path: Path, arms: Arms) -> None:
    root = tmp_path / "f"
    there = ("--rollouts", root)
    hat("canary", "start", manifest(hat, tmp_path / "r.yaml"), *there)
    looks(root)
    hat("canary", "abort", "chat-v8", *there)
    looks(root)
    assert hat("canary", "status", "chat-v8", *there, "--output=json").json()["phase"] == "Degraded"
    assert (arms.percent, arms.known) == (0, False)
    reasons = [entry["reason"] for entry in Folder(root).list("events.k8s.io/v1", "Event")]
    assert "AbortRequested" in reasons


def test_deleting_takes_the_canary_away_first(hat: Hat, tmp_path: Path, arms: Arms) -> None:
    root = tmp_path / "f"
    hat("canary", "start", manifest(hat, tmp_path / "r.yaml"), "--rollouts", root)
    looks(root)
    assert arms.percent == 10
    folder = Folder(root)
    folder.delete(API_VERSION, KIND, "chat-v8", "default")
    assert folder.get(API_VERSION, KIND, "chat-v8", "default") is not None
    looks(root)
    assert folder.get(API_VERSION, KIND, "chat-v8", "default") is None
    assert (arms.percent, arms.known) == (0, False)


def test_a_folder_keeps_the_rules_of_the_api_server(hat: Hat, tmp_path: Path) -> None:
    from hat_serving.canary.errors import ClusterError, InvalidRolloutError

    folder = Folder(tmp_path)
    raw = yaml.safe_load(manifest(hat, tmp_path / "r.yaml").read_text())
    made = folder.create(raw)
    with pytest.raises(ClusterError, match="exists"):
        folder.create(raw)
    for change in ({"release": "r9"}, {"steps": [{"setWeight": 100}]}, {"nothing": 1}):
        with pytest.raises(InvalidRolloutError):
            folder.patch(API_VERSION, KIND, "chat-v8", "default", {"spec": change})
    folder.patch(API_VERSION, KIND, "chat-v8", "default", {"spec": {"abort": True}})
    with pytest.raises(InvalidRolloutError, match="cannot be taken back"):
        folder.patch(API_VERSION, KIND, "chat-v8", "default", {"spec": {"abort": None}})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": {"phase": "Healthy"}}
    with pytest.raises(ClusterError, match="changed meanwhile"):
        folder.patch(API_VERSION, KIND, "chat-v8", "default", stale, status=True)
    service = {**raw, "metadata": {"name": "other"}, "spec": {**raw["spec"], "target": {
        "backend": "httproute", "route": "a", "stableService": "b", "canaryService": "c"}}}  # fmt: skip
    with pytest.raises(InvalidRolloutError, match="only the gateway"):
        folder.create(service)
    with pytest.raises(InvalidRolloutError, match="no name"):
        folder.get(API_VERSION, KIND, "../../etc/passwd", "default")
    assert json.loads((tmp_path / "default" / "chat-v8.json").read_text())["spec"]["abort"] is True


def test_the_module_names_every_verb_of_the_contract() -> None:
    assert {command.name for command in canary.app.registered_commands} >= {
        "start", "status", "pause", "resume", "promote", "abort"
    }  # fmt: skip
