"""The artifact repository of a cluster (S3): what a run brings goes there, step folders come from there.

Always holds: an archive is unpacked beside its final name first; nothing in it may point outside. Argo stores a folder
as a gzipped tar. Not here: which steps are fetched (follow).
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

from hat_pipelines.errors import RemoteError

TIMEOUT_S = 20


FULL = ("no space left", "storagefull", "quotaexceeded", "insufficientstorage", "ephemeral-storage")
"""How S3 servers and nodes say that there is no room, in lower case."""


def says_full(told: str) -> bool:
    """Whether an error's text says that there is no room for more."""
    return any(sign in told.lower() for sign in FULL)


class Store:
    """One bucket. Keys come from the AWS variables or the machine's role."""

    def __init__(self, bucket: str, endpoint: str = "", prefix: str = "hatstack") -> None:
        import boto3
        from botocore.config import Config

        settings = Config(connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries={"max_attempts": 3})
        region = os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
        self._client = boto3.client("s3", endpoint_url=endpoint or None, config=settings, region_name=region)
        self.bucket, self.prefix = bucket, prefix

    def bring(self, path: Path, digest: str) -> str:
        """Put a file or folder where Argo finds it; returns the key. What stands there already is not sent again."""
        key = f"{self.prefix}/inputs/{digest.removeprefix('sha256:')}.tgz"
        if not self._has(key):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
                archive.add(path, arcname=path.name)
            self._call("put_object", Key=key, Body=buffer.getvalue())
        return key

    def bring_tree(self, path: Path, digest: str) -> str:
        """Put a file or folder where Kubeflow Pipelines finds it, file by file; returns the URI."""
        root = f"{self.prefix}/inputs/{digest.removeprefix('sha256:')}"
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        for one in files:
            inside = one.relative_to(path).as_posix() if path.is_dir() else one.name
            self._call("put_object", Key=f"{root}/{inside}", Body=one.read_bytes())
        return f"s3://{self.bucket}/{root}" + ("" if path.is_dir() else f"/{path.name}")

    def fetch(self, key: str, target: Path, *, only: tuple[str, ...] = ()) -> None:
        """Unpack a folder; with `only`, the entries of these names at its top."""
        body = self._call("get_object", Key=key)["Body"]
        part = target.with_name(f".{target.name}.part{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            with tarfile.open(fileobj=body, mode="r|gz") as archive:
                for member in archive:
                    inside = member.name.removeprefix("./").partition("/")[2]
                    if inside and (not only or inside.partition("/")[0] in only):
                        member.name = inside
                        archive.extract(member, part, filter="data")
            shutil.rmtree(target, ignore_errors=True)
            part.replace(target)
        except (tarfile.TarError, EOFError) as error:
            raise RemoteError(f"an artifact is no archive: {error}", kind="internal", place=key) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _has(self, key: str) -> bool:
        from botocore.exceptions import ClientError

        try:
            self._client.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise self._told(error, key) from None
        return True

    def _call(self, name: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, name)(Bucket=self.bucket, **arguments)
        except (ClientError, BotoCoreError) as error:
            raise self._told(error, str(arguments.get("Key", ""))) from None

    def _told(self, error: Exception, key: str) -> RemoteError:
        told = " ".join(str(error).split())[:200]
        if says_full(told):
            cure = "free space there, then resume"
            return RemoteError(f"the artifact repository is full: {told}", kind="exhausted", place=key, cure=cure)
        return RemoteError(
            f"the artifact repository refuses: {told}",
            place=f"s3://{self.bucket}/{key}",
            cure="check bucket, endpoint and the AWS variables",
        )
