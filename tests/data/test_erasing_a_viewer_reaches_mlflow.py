"""What MLflow holds of a viewer goes too: traces and JSON lines; models made of their words are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hat_components.importer.erase_mlflow import ErasedFromMlflow, erase_from_mlflow
from hat_components.importer.scrub import pseudonym
from hat_components.register.tracking import Tracking, TrackingError

ALIAS = pseudonym(b"a secret of more than sixteen bytes", "customer-7")
DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def server(tmp_path: Path) -> tuple[str, str]:
    """An MLflow store with traces of two users, two artifacts and two registered versions."""
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracking = Tracking(uri, "room", "", timeout_s=5, retries=0)
    folder = tmp_path / "out" / "deep"
    folder.mkdir(parents=True)
    rows: list[Any] = [
        {"id": "c1", "viewer": ALIAS},
        {"id": "x", "item": "c2"},
        {"id": "c3", "viewer": "viewer_other"},
        ["note", ALIAS],
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    (folder / "page.html").write_text(ALIAS)
    (folder / "clean.jsonl").write_text('{"id": "c9"}\n')
    with tracking.run("made", {}) as run:
        tracking.upload(run, tmp_path / "out", "results")
        for number, digest in enumerate((DIGEST, "sha256:" + "b" * 64)):
            tracking.register(run, "room.model", "newest", {"hatstack.model": str(number), "hatstack.dataset": digest})
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("room")
    try:
        for user in ("customer-7", ALIAS, "o'hara"):
            with mlflow.start_span("turn"):
                mlflow.update_current_trace(metadata={"mlflow.trace.user": user})
        mlflow.flush_trace_async_logging()
    finally:
        mlflow.set_tracking_uri(before)
    return uri, run


def erase(uri: str, viewer: str = "customer-7", dry_run: bool = False) -> ErasedFromMlflow:
    return erase_from_mlflow(uri, viewer, ALIAS, {"c1", "c2"}, {DIGEST}, dry_run=dry_run)


def test_traces_and_lines_go_and_nothing_else(server: tuple[str, str], tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri, run = server
    told = erase(uri, dry_run=True)
    gone = erase(uri)
    assert told == gone
    assert gone.traces == 2
    assert gone.artifacts == {f"runs/{run}/results/deep/rows.jsonl": 3}
    assert gone.models == ["room.model/1"]
    client = MlflowClient(tracking_uri=uri)
    left = Path(client.download_artifacts(run, "results", str(tmp_path)))
    assert (left / "deep" / "rows.jsonl").read_text() == '{"id": "c3", "viewer": "viewer_other"}\n{broken\n'
    assert (left / "deep" / "clean.jsonl").read_text() == '{"id": "c9"}\n'
    again = erase(uri)
    assert (again.traces, again.artifacts) == (0, {})
    assert erase(uri, "o'hara").traces == 1


def test_a_server_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_RETRIES", "0"), ("TIMEOUT", "1")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    with pytest.raises(TrackingError, match="MLflow cannot be used"):
        erase("http://127.0.0.1:9")
