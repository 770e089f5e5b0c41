"""The close step: MLflow runs that a pipeline's run left open are ended as killed. For an exit handler.

Always holds: a run that has ended is left as it is, so closing twice changes nothing. Takes no inputs. Not here: what
else a run leaves behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from hat_components.close.config import Config
from hat_components.data import digest_path, write_text
from hat_components.register.tracking import answering
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """End open MLflow runs. Raises TrackingError when MLflow does not answer."""
    uri = config.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    closed = _close(config, uri) if uri and config.run else []
    write_text(out / "closed.json", json.dumps({"closed": closed}, indent=2) + "\n")
    return StepResult(
        artifacts={"closed": "closed.json"},
        digests={"closed": digest_path(out / "closed.json")},
        metrics={"closed": float(len(closed))},
    )


def _close(config: Config, uri: str) -> list[str]:
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(config.timeout_s)
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "1"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with answering(uri):
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiments = [one.experiment_id for one in client.search_experiments()]
        tagged = f"tags.`hatstack.run` = '{config.run}' and attributes.status = 'RUNNING'"
        found = [str(one.info.run_id) for one in client.search_runs(experiments, tagged)] if experiments else []
        for ident in found:
            client.set_terminated(ident, "KILLED")
    return found
