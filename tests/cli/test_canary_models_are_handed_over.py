"""A registered model becomes the concrete URI of weights in a real S3, and only while their bytes are the registered ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_components.data import digest_path
from tests.registry.servers import S3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    made = S3(tmp_path_factory.mktemp("weed"))
    yield made
    made.kill()


@pytest.fixture
def model(store: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`chat` version 1, tagged with the digest of its folder; the tracking URI."""
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", store.endpoint)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hat")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hat-secret")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(os.urandom(4096))
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.create_experiment("e", artifact_location=f"s3://hatstack/{tmp_path.name}")
    run = client.create_run(experiment).info
    client.log_artifacts(run.run_id, str(folder), "model")
    client.create_registered_model("default.chat")
    tags = {"hatstack.model": digest_path(folder)}
    client.create_model_version("default.chat", f"{run.artifact_uri}/model", run_id=run.run_id, tags=tags)
    client.set_registered_model_alias("default.chat", "candidate", "1")
    return uri


def render(hat: Callable[..., Any], uri: str, *more: str) -> Any:
    argv = ("canary", "render", "chat-v8", "--release", "r8", "--service", "chat", "--mlflow", uri)
    return hat(*argv, *more, "--output=json")


def test_an_alias_becomes_a_concrete_uri_and_changed_weights_are_refused(
    hat: Callable[..., Any], store: S3, model: str
) -> None:
    from urllib.parse import urlsplit

    done = render(hat, model, "--model", "chat@candidate")
    assert done.code == 0, done.err
    uri = done.json()["spec"]["target"]["canary"]["storageUri"]
    assert uri.startswith("s3://hatstack/")
    assert "candidate" not in uri
    import boto3

    boto3.client("s3", endpoint_url=store.endpoint).put_object(
        Bucket="hatstack", Key=f"{urlsplit(uri).path.lstrip('/')}/model.safetensors", Body=b"other bytes"
    )
    changed = render(hat, model, "--model", "chat@1")
    assert (changed.code, changed.error()["kind"]) == (1, "check_failed")
    assert render(hat, model, "--model", "chat@1", "--no-verify").code == 0
    assert render(hat, model, "--model", "chat@9").code == 3
    assert render(hat, model, "--model", "chat@1", "--uri", "s3://x/y").code == 2


def test_weights_that_no_cluster_can_fetch_are_refused(hat: Callable[..., Any], model: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=model, registry_uri=model)
    client.create_model_version("default.chat", str(tmp_path / "model"), tags={"hatstack.model": "sha256:" + "0" * 64})
    refused = render(hat, model, "--model", "chat@2")
    assert refused.code == 3
    assert "which a cluster cannot fetch" in refused.err
