"""From a registered model to the weights that a cluster fetches: a concrete URI, whose bytes have the registered digest.

Always holds: no alias and no proxy address comes out, because what was tested must be what runs; the weights are read once
and compared with `hatstack.model` before a manifest names them. Not here: registering (hat_components.register).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hatstack.cli.failure import CheckError, InputError, UnavailableError
from hatstack.cli.model import registered
from hatstack.cli.output import say

FETCHED = ("s3://", "gs://", "abfs://", "abfss://", "oci://", "pvc://", "hf://")
"""What KServe's storage initializer fetches by itself."""


def weights(model: str, runs_dir: Path | None, uri: str, *, verify: bool) -> tuple[str, str]:
    """(storage URI, digest) of NAME, NAME@ALIAS or NAME@VERSION. InputError, CheckError, UnavailableError."""
    version = registered(model, runs_dir, uri)
    source, digest = str(version["source"]), str(version["digest"])
    if not source.startswith(FETCHED):
        raise InputError(
            f"the weights lie at {source[:120]}, which a cluster cannot fetch",
            place=model,
            cure="register them with an artifact root of s3:// or the like (steps.register.artifact_root)",
        )
    if not digest:
        raise InputError("the version has no digest (tag hatstack.model)", place=model, cure="register it by hat run")
    if verify:
        _compare(source, digest, model)
    return source, digest


def _compare(source: str, digest: str, model: str) -> None:
    """Read the weights and compare. They are fetched into a temporary folder, which needs as much room as they have."""
    from hat_components.data import digest_path

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    say(f"reading {source} to compare its digest ...")
    from mlflow.artifacts import download_artifacts

    with tempfile.TemporaryDirectory(prefix="hatstack-weights-") as folder:
        try:
            found = digest_path(Path(download_artifacts(artifact_uri=source, dst_path=folder)))
        except Exception as error:  # the store's own client raises: boto3, google, azure
            reason = " ".join(str(error).split())[:200]
            raise UnavailableError(f"the weights cannot be read: {reason}", place=source) from None
    if found != digest:
        raise CheckError(
            f"the weights have digest {found[:19]}, registered was {digest[:19]}",
            place=source,
            cure=f"something wrote over them: register {model} anew",
        )
