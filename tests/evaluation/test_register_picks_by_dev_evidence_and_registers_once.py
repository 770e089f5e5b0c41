"""The better arm by dev evidence becomes one tagged candidate version, and MLflow's failures are said as such."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.data import digest_path
from hat_components.register.config import Config
from hat_components.register.step import run
from hat_components.register.tracking import TrackingError
from hat_components.step import InputError, NullProgress, StepResult

Fabricate = Callable[..., dict[str, Path]]
NAIVE = {"t1": [1.0] * 4, "t2": [0.0] * 4}
HSA = {"t1": [0.9] * 4, "t2": [0.8] * 4}


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def register(tmp_path: Path, inputs: dict[str, Path], **config: Any) -> StepResult:
    store = tmp_path / "store" / "mlflow.db"
    settings = {"uri": f"sqlite:///{store}", "profile": "sha256:p", "code": "c1", **config}
    return run(Config.model_validate(settings), inputs, tmp_path / "out", NullProgress())


def client(tmp_path: Path) -> Any:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}"
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def test_the_better_arm_becomes_the_candidate_with_all_its_tags(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE) | fabricate("hsa", HSA)
    result = register(tmp_path, inputs)
    assert result.notes["arm"] == "hsa"
    assert result.metrics == {"score_hsa": pytest.approx(0.85), "score_naive": 0.5, "version": 1.0}
    mlflow = client(tmp_path)
    version = mlflow.get_model_version_by_alias("default.live-commerce", "candidate")
    digest = digest_path(inputs["model-hsa"])
    assert version.tags["hatstack.model"] == digest
    assert {key.removeprefix("hatstack.") for key in version.tags} >= {
        "harness",
        "dataset",
        "config",
        "code",
        "profile",
    }
    assert digest_path(Path(version.source)) == digest
    experiment = mlflow.get_experiment_by_name("default.hatstack")
    runs = {found.info.run_name: found for found in mlflow.search_runs([experiment.experiment_id])}
    assert set(runs) == {"live-commerce-naive", "live-commerce-hsa"}
    best = runs["live-commerce-hsa"]
    assert best.info.status == "FINISHED"
    assert best.data.metrics["t2.average"] == pytest.approx(0.8)
    curve = mlflow.get_metric_history(best.info.run_id, "loss")
    assert [point.step for point in curve] == list(range(50))

    again = register(tmp_path, inputs)
    assert again.notes["changed"] is False
    assert again.notes["version"] == "1"
    assert len(mlflow.search_model_versions("name='default.live-commerce'")) == 1


def test_arms_are_not_chosen_on_sealed_seeds(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE, seeds="sealed") | fabricate("hsa", HSA, seeds="sealed")
    with pytest.raises(InputError, match="sealed seeds"):
        register(tmp_path, inputs)
    assert not (tmp_path / "store").exists()


def test_an_arm_needs_evidence_of_that_very_model(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE)
    with pytest.raises(InputError, match="no evaluation"):
        register(tmp_path, {"model-naive": inputs["model-naive"]})
    (inputs["model-naive"] / "model.safetensors").write_bytes(b"other")
    with pytest.raises(InputError, match="another model"):
        register(tmp_path, inputs)
    with pytest.raises(InputError, match="no model"):
        register(tmp_path, {})


def test_pickles_are_refused(tmp_path: Path, fabricate: Fabricate) -> None:
    inputs = fabricate("naive", NAIVE)
    (inputs["model-naive"] / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(InputError, match="pickled"):
        register(tmp_path, inputs)


def test_a_suite_that_decides_must_have_been_evaluated(tmp_path: Path, fabricate: Fabricate) -> None:
    with pytest.raises(InputError, match="no suite 't9'"):
        register(tmp_path, fabricate("naive", NAIVE), select={"t9": 1.0})


def test_a_server_that_is_down_is_unavailable_and_nothing_is_written(tmp_path: Path, fabricate: Fabricate) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses at once
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TrackingError) as caught:
            register(tmp_path, fabricate("naive", NAIVE), uri=uri, retries=0, timeout_s=2)
    assert caught.value.kind == "unavailable"
    assert not (tmp_path / "out" / "registration.json").exists()


def test_a_broken_store_is_unavailable(tmp_path: Path, fabricate: Fabricate) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mlflow.db").write_text("this is no database")
    with pytest.raises(TrackingError, match="MLflow cannot be used"):
        register(tmp_path, fabricate("naive", NAIVE))


def test_an_odd_uri_is_refused(tmp_path: Path, fabricate: Fabricate) -> None:
    with pytest.raises(InputError, match="none of"):
        register(tmp_path, fabricate("naive", NAIVE), uri="ftp://x")


def test_runs_join_the_pipeline_run_that_the_platform_opened(
    tmp_path: Path, fabricate: Fabricate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc123")
    register(tmp_path, fabricate("naive", NAIVE))
    mlflow = client(tmp_path)
    experiment = mlflow.get_experiment_by_name("default.hatstack")
    (found,) = mlflow.search_runs([experiment.experiment_id])
    assert found.data.tags["mlflow.parentRunId"] == "abc123"
    assert json.loads((tmp_path / "out" / "registration.json").read_text())["arm"] == "naive"
