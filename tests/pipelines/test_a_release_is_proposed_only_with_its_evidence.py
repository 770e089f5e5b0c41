"""Gate, release and close: bounds are held against intervals, a proposal carries its evidence, open MLflow runs end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from hat_components.close import step as close
from hat_components.close.config import Config as CloseConfig
from hat_components.data import digest_path
from hat_components.gate import step as gate
from hat_components.gate.config import Bound
from hat_components.gate.config import Config as GateConfig
from hat_components.release import step as release
from hat_components.release.config import Config as ReleaseConfig
from hat_components.step import InputError, NullProgress, StepError
from hat_registry import accounts
from hat_registry.api.app import create_app
from hat_registry.archive import read_folder
from hat_registry.registry import Registry
from hatstack import paths


def evaluation(path: Path, mean: float, *, model: str = "", harness: str = "sha256:" + "ab" * 32) -> Path:
    interval = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}
    suite = {
        "id": "t1", "title": "T1", "kind": "rollout", "headline": "average", "scores": {"average": interval},
        "intents": {}, "families": {}, "items": [],
    }  # fmt: skip
    digest = "sha256:" + "cd" * 32
    content = {"format": "hatstack.evaluation/1", "arm": "hsa", "policy": "model", "model": model, "harness": harness,
               "dataset": digest, "config": digest, "seeds": "sealed", "suites": [suite], "environment": {}}  # fmt: skip
    path.write_text(json.dumps(content))
    return path


def judged(tmp_path: Path, **config: Any) -> tuple[float, list[dict[str, Any]]]:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    inputs = {"evaluation": evaluation(tmp_path / "e.json", 0.8)}
    if config.pop("baseline", None):
        inputs["baseline"] = evaluation(tmp_path / "b.json", 0.9)
    result = gate.run(GateConfig(**config), inputs, out, NullProgress())
    return result.metrics["passed"], json.loads((out / "gate.json").read_text())["rows"]


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [
        ({}, 1.0),
        ({"t1.average": Bound(least=0.75)}, 1.0),
        ({"t1.average": Bound(least=0.76)}, 0.0),
        ({"t1": Bound(least=0.7)}, 1.0),
        ({"t2.average": Bound(least=0.1)}, 0.0),
    ],
)
def test_a_bound_is_held_against_the_lower_end(tmp_path: Path, bounds: dict[str, Bound], passed: float) -> None:
    assert judged(tmp_path, bounds=bounds)[0] == passed


def test_a_drop_is_told_and_an_alarm_ends_the_step(tmp_path: Path) -> None:
    drop = {"t1.average": Bound(drop=0.05)}
    passed, rows = judged(tmp_path, bounds=drop, baseline=True)
    assert (passed, rows[0]["says"]) == (0.0, "t1.average fell from 0.900 to 0.800")
    assert judged(tmp_path, bounds={"t1.average": Bound(drop=0.2)}, baseline=True)[0] == 1.0
    with pytest.raises(InputError, match="needs a baseline"):
        judged(tmp_path, bounds=drop)
    with pytest.raises(gate.GateBrokenError) as caught:
        judged(tmp_path, bounds=drop, baseline=True, alarm=True)
    assert caught.value.kind == "check_failed"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[tuple[str, Registry]]:
    made = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    server = uvicorn.Server(uvicorn.Config(create_app(made, open_access=True), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pause = threading.Event()
    while not server.started and thread.is_alive():
        pause.wait(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", made
    server.should_exit = True
    thread.join(20)
    made.close()


def test_a_proposal_carries_its_evidence_and_is_sent_once(tmp_path: Path, registry: tuple[str, Registry]) -> None:
    url, store = registry
    version, _ = store.push(accounts.SYSTEM, read_folder(paths.harness("live-commerce")), message="first")
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    digest = digest_path(model)
    inputs = {
        "model": model,
        "harness": paths.harness("live-commerce"),
        "evaluation": evaluation(tmp_path / "e.json", 0.8, model=digest, harness=version.digest),
    }
    config = ReleaseConfig(registry=url, run="run-1")
    told = []
    for number in range(2):
        out = tmp_path / f"out{number}"
        out.mkdir()
        release.run(config, inputs, out, NullProgress())
        told.append(json.loads((out / "proposal.json").read_text()))
    assert told[0]["proposal"] == told[1]["proposal"]
    assert told[0]["release"]["model"] == digest
    with store.database.read() as tx:
        from hat_registry import evidence, proposals

        found = proposals.get(tx, "default", told[0]["proposal"])
        assert (found.kind, found.pointer, found.to_digest, found.state) == (
            "release", "canary", told[0]["digest"], "open",
        )  # fmt: skip
        pieces = evidence.of_subject(tx, "default", told[0]["digest"])
    assert [piece.content["t1"]["average"]["mean"] for _, piece in pieces] == [0.8]


def test_without_a_registry_it_is_written_and_another_models_evaluation_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "w").write_text("x")
    inputs = {"model": model, "harness": model, "evaluation": evaluation(tmp_path / "e.json", 0.8)}
    with pytest.raises(InputError, match="another model"):
        release.run(ReleaseConfig(), inputs, tmp_path, NullProgress())
    inputs["evaluation"] = evaluation(tmp_path / "e.json", 0.8, model=digest_path(model))
    assert release.run(ReleaseConfig(), inputs, tmp_path, NullProgress()).metrics["sent"] == 0.0
    registration = tmp_path / "registration.json"
    registration.write_text(json.dumps({"arm": "hsa", "model": "models:/x/3"}))
    arms = {f"{name}-hsa": path for name, path in inputs.items() if name != "harness"}
    arms |= {"model-naive": tmp_path / "e.json", "evaluation-naive": tmp_path / "e.json"}
    release.run(ReleaseConfig(), {**arms, "harness": model, "registration": registration}, tmp_path, NullProgress())
    told = json.loads((tmp_path / "proposal.json").read_text())["release"]
    assert (told["model"], told["model_reference"]) == (digest_path(model), "models:/x/3")
    with pytest.raises(StepError) as caught:
        release.run(ReleaseConfig(registry="http://127.0.0.1:9"), inputs, tmp_path, NullProgress())
    assert caught.value.kind == "unavailable"


def test_what_a_run_left_open_in_mlflow_is_closed(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("one", artifact_location=str(tmp_path / "artifacts"))
    mine, other = (client.create_run(experiment, tags={"hatstack.run": name}).info.run_id for name in ("a", "b"))
    result = close.run(CloseConfig(run="a", uri=uri), {}, tmp_path, NullProgress())
    assert result.metrics["closed"] == 1.0
    assert [client.get_run(one).info.status for one in (mine, other)] == ["KILLED", "RUNNING"]
    assert close.run(CloseConfig(run="a", uri=uri), {}, tmp_path, NullProgress()).metrics["closed"] == 0.0
    assert close.run(CloseConfig(), {}, tmp_path, NullProgress()).metrics["closed"] == 0.0
