"""Where a cluster's workflow engine and its artifact store are, from `key=value` settings or the environment.

Always holds: secrets are never settings; they come from the kubeconfig, the pod's service account, a token file, or the
AWS variables. Not here: talking to them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hat_pipelines.errors import RemoteError

KEYS: Mapping[str, str] = {
    "argo": "kubeconfig file, or `in-cluster`",
    "argo_namespace": "namespace of the workflows (default)",
    "argo_page": "URL to which a workflow's name is added, for links to its page",
    "kfp": "URL of the Kubeflow Pipelines API",
    "kfp_token_file": "file with a bearer token; in a pod its service account's token is found",
    "kfp_namespace": "namespace of a multi-user installation",
    "kfp_page": "URL to which a run's id is added, for links to its page",
    "s3_endpoint": "URL of the artifact repository; empty: AWS",
    "s3_bucket": "its bucket",
    "s3_prefix": "prefix of the keys that runs bring (hatstack)",
}
POD_TOKENS = (
    Path("/var/run/secrets/kubeflow/pipelines/token"),
    Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
)


@dataclass(frozen=True, slots=True)
class Remote:
    """Checked settings."""

    argo: str = ""
    argo_namespace: str = "default"
    argo_page: str = ""
    kfp: str = ""
    kfp_token_file: str = ""
    kfp_namespace: str = ""
    kfp_page: str = ""
    s3_endpoint: str = ""
    s3_bucket: str = ""
    s3_prefix: str = "hatstack"

    def token(self) -> str:
        """The bearer token for Kubeflow Pipelines; "" where there is none. It is read anew: tokens rotate."""
        chosen = (Path(self.kfp_token_file),) if self.kfp_token_file else POD_TOKENS
        for path in chosen:
            try:
                return path.read_text(encoding="utf-8").strip()
            except OSError:
                continue
        if self.kfp_token_file:
            raise RemoteError("the token file cannot be read", kind="invalid_input", place=self.kfp_token_file)
        return ""


def read(given: Mapping[str, str]) -> Remote:
    """Settings as given, the rest from `HATSTACK_<KEY>`. RemoteError names an unknown key."""
    for key in given:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            cure = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(KEYS)}"
            raise RemoteError(f"unknown setting {key[:40]!r}", kind="invalid_input", place="remote", cure=cure)
    found = {key: given.get(key) or os.environ.get(f"HATSTACK_{key.upper()}", "") for key in KEYS}
    return Remote(**{key: value for key, value in found.items() if value})
