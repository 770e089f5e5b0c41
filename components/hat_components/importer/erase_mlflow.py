"""Erases a viewer from an MLflow server: traces, lines of JSONL artifacts; and says which models were made of their words.

Always holds: an artifact is replaced whole or left as it was; what is not JSON lines is never rewritten. Found are traces whose
user is the viewer's own id or pseudonym, and records that carry the pseudonym or the id of an erased conversation. Not here:
datasets and their lineage (erase).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hat_components.importer.mlflow_traces import USER
from hat_components.register.tracking import answering

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_PAGE = 100


@dataclass
class ErasedFromMlflow:
    """What was removed, or would be."""

    traces: int = 0
    artifacts: dict[str, int] = field(default_factory=dict)
    """`runs/<id>/<path>` → lines."""
    models: list[str] = field(default_factory=list)
    """`name/version` of registered models whose dataset held the viewer's words; they must be made again."""


def erase_from_mlflow(
    uri: str, viewer: str, pseudonym: str, ids: set[str], digests: set[str], *, dry_run: bool = False
) -> ErasedFromMlflow:
    """Remove the viewer from the server at `uri`.

    `ids`: erased conversations; `digests`: the datasets that held them. TrackingError when MLflow does not answer.
    """
    found = ErasedFromMlflow()
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    with answering(uri):
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        for experiment in client.search_experiments():
            ident = str(experiment.experiment_id)
            found.traces += _traces(client, ident, (viewer, pseudonym), dry_run)
            for run in _runs(client, ident):
                for path in _files(client, run, ""):
                    lines = _artifact(client, run, path, pseudonym, ids, dry_run)
                    if lines:
                        found.artifacts[f"runs/{run}/{path}"] = lines
        for version in _versions(client):
            if version.tags.get("hatstack.dataset") in digests:
                found.models.append(f"{version.name}/{version.version}")
    return found


def _traces(client: MlflowClient, experiment: str, users: tuple[str, str], dry_run: bool) -> int:
    """Traces of one person in one experiment; compared here, since a filter cannot quote every id."""
    mine: list[str] = []
    token: str | None = None
    while True:
        page = client.search_traces(locations=[experiment], max_results=_PAGE, page_token=token, include_spans=False)
        mine += [trace.info.trace_id for trace in page if trace.info.trace_metadata.get(USER) in users]
        token = page.token
        if not token:
            break
    for start in range(0, 0 if dry_run else len(mine), _PAGE):
        client.delete_traces(experiment, trace_ids=mine[start : start + _PAGE])
    return len(mine)


def _runs(client: MlflowClient, experiment: str) -> Iterator[str]:
    token: str | None = None
    while True:
        page = client.search_runs([experiment], max_results=_PAGE, page_token=token)
        yield from (str(run.info.run_id) for run in page)
        token = page.token
        if not token:
            return


def _versions(client: MlflowClient) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = client.search_model_versions(max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _files(client: MlflowClient, run: str, folder: str) -> Iterator[str]:
    """Paths of all JSON lines among a run's artifacts."""
    for info in client.list_artifacts(run, folder or None):
        if info.is_dir:
            yield from _files(client, run, info.path)
        elif info.path.endswith(".jsonl"):
            yield info.path


def _artifact(client: MlflowClient, run: str, path: str, pseudonym: str, ids: set[str], dry_run: bool) -> int:
    """Lines of one artifact that are the viewer's; without `dry_run` it stands without them afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(client.download_artifacts(run, path, folder))
        kept, gone = Path(folder) / "kept" / PurePosixPath(path).name, 0
        kept.parent.mkdir()
        with source.open("rb") as lines, kept.open("wb") as out:
            for line in lines:
                if _theirs(line, pseudonym, ids):
                    gone += 1
                else:
                    out.write(line)
        if gone and not dry_run:
            parent = str(PurePosixPath(path).parent)
            client.log_artifact(run, str(kept), None if parent == "." else parent)
    return gone


def _theirs(line: bytes, pseudonym: str, ids: set[str]) -> bool:
    """Whether a record is the viewer's: by its fields, or, where it is no object, by the pseudonym in it."""
    if pseudonym.encode() in line:
        return True
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and any(record.get(key) in ids for key in ("id", "item", "conversation"))
