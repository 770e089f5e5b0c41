"""Trees of files in a folder or below an S3 prefix, copied with digests: MLflow's artifacts on their way to a backup and back.

Always holds: a copy is compared with its digest; a file appears under its name only when it is whole; paths never leave
the tree. Not here: blobs, which are named by their digests (store.blobs).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from hat_registry.archive import safe_path
from hat_registry.errors import StoreError

CHUNK = 1 << 20


class Tree(Protocol):
    """Files by relative POSIX path."""

    def paths(self) -> Iterator[str]:
        """All of them, in order."""

    def take(self, path: str, target: Path) -> None:
        """Copy one file out to `target`."""

    def put(self, path: str, source: Path) -> None:
        """Copy one file in."""


class FolderTree:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def paths(self) -> Iterator[str]:
        """All regular files; links are passed over, since they may lead outside."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(self.root).as_posix()

    def take(self, path: str, target: Path) -> None:
        """Copy out."""
        shutil.copyfile(self.root / path, target)

    def put(self, path: str, source: Path) -> None:
        """Copy in, whole or not at all."""
        place = self.root / safe_path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=".new-")
        os.close(handle)
        try:
            shutil.copyfile(source, temporary)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(place)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class S3Tree:
    """Objects below `s3://bucket/prefix`; endpoint and keys from AWS_* variables unless given."""

    def __init__(self, bucket: str, prefix: str, **client: Any) -> None:
        import boto3

        self.bucket, self.prefix = bucket, prefix.strip("/")
        self.client = boto3.client("s3", **client)

    def paths(self) -> Iterator[str]:
        """All objects."""
        start = f"{self.prefix}/" if self.prefix else ""
        with _answering(self.bucket):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start):
                yield from (entry["Key"].removeprefix(start) for entry in page.get("Contents", []))

    def take(self, path: str, target: Path) -> None:
        """Download, streaming."""
        with _answering(self.bucket):
            self.client.download_file(self.bucket, self._key(path), str(target))

    def put(self, path: str, source: Path) -> None:
        """Upload, streaming."""
        with _answering(self.bucket):
            self.client.upload_file(str(source), self.bucket, self._key(path))

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{safe_path(path)}" if self.prefix else safe_path(path)


def tree(place: str) -> Tree:
    """The tree at a folder or an `s3://bucket/prefix`."""
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        return S3Tree(bucket, prefix)
    return FolderTree(Path(place))


def digest_file(path: Path) -> str:
    """`sha256:` and the hex digest of a file, read in pieces."""
    seen = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            seen.update(chunk)
    return f"sha256:{seen.hexdigest()}"


@contextmanager
def _answering(bucket: str) -> Iterator[None]:
    """Turns what boto3 raises into StoreError."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        place = f"s3://{bucket}"
        raise StoreError(f"S3 failed ({type(error).__name__})", place=place, cure="check bucket and keys") from None
