"""MLflow as the register step uses it: one bounded client, and what fails because of MLflow is `unavailable`.

Always holds: every request has a time limit and a bounded number of tries; without a server nothing listens, the
tracking store is an SQLite file used in process. Not here: which arm is registered (step).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hat_components.step import InputError, StepError
from hat_harness.errors import Kind

_PARAM_LIMIT = 6000
_BATCH = 500


class TrackingError(StepError):
    """MLflow does not answer, or answers with an error of its own."""

    kind: Kind = "unavailable"


@dataclass(frozen=True, slots=True)
class Version:
    """A registered model version."""

    name: str
    version: str
    source: str
    created: bool
    """False when a version with the same model digest stood already."""


@contextlib.contextmanager
def answering(uri: str) -> Iterator[None]:
    """Turn whatever MLflow, its database or its transport (requests raises OSErrors) raise into TrackingError."""
    import sqlalchemy.exc
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TrackingError(
            f"MLflow cannot be used: {reason}",
            place=uri.split("@")[-1],
            cure="check that the server runs and the URI is right, then run the step again: it registers nothing twice",
        ) from error


def locate(uri: str, fallback: Path) -> str:
    """The tracking URI: the configured one, else the environment's, else an SQLite file in `fallback`."""
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not chosen:
        fallback.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{fallback.resolve() / 'mlflow.db'}"
    if not chosen.startswith(("sqlite:///", "http://", "https://", "postgresql", "mysql")):
        raise InputError(
            "the tracking URI is none of sqlite:///, http://, https://, postgresql, mysql",
            place=chosen.split("@")[-1],
            cure="give the URI of an MLflow server or of a database",
        )
    return chosen


class Tracking:
    """An MLflow client bound to one experiment."""

    def __init__(self, uri: str, experiment: str, artifact_root: str, *, timeout_s: int, retries: int) -> None:
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(timeout_s)
        os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = str(retries)
        os.environ["MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR"] = "1"
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self.uri = uri
        with answering(uri):
            import logging

            from mlflow.tracking import MlflowClient

            for name in ("mlflow", "alembic"):
                logging.getLogger(name).setLevel(logging.WARNING)
            if uri.startswith("sqlite:///"):
                Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            self.experiment = self._experiment(experiment, artifact_root)

    def _experiment(self, name: str, artifact_root: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        root: str | None = artifact_root or None
        if root is None and self.uri.startswith("sqlite:///"):
            root = str(Path(self.uri.removeprefix("sqlite:///")).parent / "artifacts" / name)
        return str(self.client.create_experiment(name, artifact_location=root))

    @contextlib.contextmanager
    def run(self, name: str, tags: Mapping[str, str]) -> Iterator[str]:
        """A run that ends FINISHED, or FAILED when the block raises; below MLFLOW_RUN_ID's run where there is one."""
        parent = os.environ.get("MLFLOW_RUN_ID", "")
        with answering(self.uri):
            every = {**tags, **({"mlflow.parentRunId": parent} if parent else {})}
            ident = str(self.client.create_run(self.experiment, run_name=name, tags=every).info.run_id)
        try:
            yield ident
        except BaseException:
            with contextlib.suppress(StepError), answering(self.uri):
                self.client.set_terminated(ident, "FAILED")
            raise
        with answering(self.uri):
            self.client.set_terminated(ident, "FINISHED")

    def log(
        self,
        run: str,
        *,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        curves: Sequence[tuple[str, float, int]] = (),
    ) -> None:
        """Log parameters, final metrics and the points (name, value, step) of curves, in batches."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        points = [Metric(name, value, now, 0) for name, value in metrics.items()]
        points += [Metric(name, value, now, step) for name, value, step in curves]
        with answering(self.uri):
            entries = [Param(key, str(value)[:_PARAM_LIMIT]) for key, value in params.items()]
            for start in range(0, len(entries), 100):
                self.client.log_batch(run, params=entries[start : start + 100])
            for start in range(0, len(points), _BATCH):
                self.client.log_batch(run, metrics=points[start : start + _BATCH])

    def upload(self, run: str, path: Path, name: str) -> None:
        """Store a file or folder as artifact `name` of the run."""
        with answering(self.uri):
            if path.is_dir():
                self.client.log_artifacts(run, str(path), name)
            else:
                self.client.log_artifact(run, str(path), name)

    def register(self, run: str, name: str, alias: str, tags: Mapping[str, str]) -> Version:
        """Register the run's artifact `model` and move `alias` to it.

        A version whose tag `hatstack.model` equals is used again, so that registering twice changes nothing.
        """
        from mlflow.exceptions import MlflowException

        with answering(self.uri):
            try:
                self.client.get_registered_model(name)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self.client.create_registered_model(name, tags={"hatstack.workspace": name.split(".")[0]})
            same = [
                version
                for version in self.client.search_model_versions(f"name='{name}'")
                if version.tags.get("hatstack.model") == tags["hatstack.model"]
            ]
            if same:
                version, created = same[0], False
                for key, value in tags.items():
                    self.client.set_model_version_tag(name, version.version, key, value)
            else:
                root = self.client.get_run(run).info.artifact_uri
                version = self.client.create_model_version(name, f"{root}/model", run_id=run, tags=dict(tags))
                created = True
            self.client.set_registered_model_alias(name, alias, version.version)
        return Version(name, str(version.version), str(version.source), created)
