"""`hat doctor cluster` and `hat canary` on a real API server: what is there, what is missing, and a rollout by words alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hat_serving.canary.inspect import inspect, may
from hat_serving.canary.kube import Kube
from hatstack.cli import main
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import until
from tests.cluster.rollouts import until_phase

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("controller")]
Hat = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def hat(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Hat:
    """(exit code, answer, what was said)."""

    def call(*argv: object) -> tuple[int, Any, str]:
        capfd.readouterr()
        words = [str(word) for word in (*argv, "--kubeconfig", cluster.kubeconfig, "--output=json")]
        code = main.main(words)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return code, json.loads(out) if out.strip() else None, err

    return call


def test_a_cluster_that_has_everything_says_so(hat: Hat, kube: Kube) -> None:
    until(lambda: [f for f in inspect(kube, "default") if f.check == "controller" and f.state == "ok"], "a leader")
    code, body, _ = hat("doctor", "cluster")
    states = {one["check"]: one["state"] for one in body["findings"]}
    assert code == 0, body
    for check in ("kubernetes", "rollouts", "gateway api", "kserve", "kserve ingress", "controller", "gpus h20-0"):
        assert states[check] == "ok", body
    assert states["your rights"] == "ok"


def test_what_would_stop_a_rollout_is_told_before_it_starts(hat: Hat, tmp_path: Path, namespace: str) -> None:
    code, body, _ = hat("doctor", "cluster", "--rollout", _rendered(tmp_path, namespace, "50"))
    found = {one["check"]: one["cure"] for one in body["findings"] if one["state"] == "bad"}
    assert code == 1
    assert "deploy the stable version first" in found["NoService"]
    assert "NoDigest" in {one["check"] for one in body["findings"] if one["state"] == "note"}


def test_an_account_without_rights_is_told_which_it_lacks(kube: Kube, namespace: str) -> None:
    kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "eve", "namespace": namespace}})
    theirs = kube.with_token(kube.token(namespace, "eve"))
    assert not may(theirs, "create", "hatstack.dev", "canaryrollouts", namespace)
    found = {one.check: one for one in inspect(theirs, namespace)}
    assert found["your rights"].state == "bad"
    assert "create canaryrollouts" in found["your rights"].found
    assert found["gpus"].state == "note"


@pytest.mark.matrix
def test_a_rollout_is_run_by_words_alone(hat: Hat, tmp_path: Path, kube: Kube, namespace: str, stable: str) -> None:
    file = _rendered(tmp_path, namespace, "10,50")
    place = ("chat-v2", "-n", namespace)
    code, body, _ = hat("doctor", "cluster", "--rollout", file)
    assert code == 0, body
    assert hat("canary", "start", file)[1]["changed"] is True
    assert hat("canary", "start", file)[1]["changed"] is False
    until(lambda: hat("canary", "status", *place)[1]["effective_weight"] == 10, "10 % in force")
    assert hat("canary", "pause", *place)[1]["changed"] is True
    until_phase(kube, namespace, "Paused")
    assert hat("canary", "resume", *place)[1]["changed"] is True
    assert hat("canary", "promote", *place)[1]["changed"] is True
    assert until_phase(kube, namespace, "Healthy", "Degraded")["reason"] == "Promoted"
    code, _, said = hat("canary", "abort", *place)
    assert (code, json.loads(said.splitlines()[-1])["kind"]) == (4, "conflict")
    assert [one["name"] for one in hat("canary", "status", "-n", namespace)[1]] == ["chat-v2"]


def _rendered(tmp_path: Path, namespace: str, steps: str) -> Path:
    from hat_serving.canary import control, plan
    from hat_serving.canary.spec import read_spec

    target = plan.service_target("chat-v2", "chat", "s3://models/v2", 1, [])
    raw = {"release": "r2", "target": target, **plan.arms(target, "v1"), **plan.measured(steps, "1h", [], "sglang")}
    file = tmp_path / "rollout.yaml"
    file.write_text(yaml.safe_dump(control.render("chat-v2", namespace, read_spec(raw))))
    return file
