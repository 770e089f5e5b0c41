"""Content-addressed blobs: in a folder by default, in S3 (boto3) when asked.

Always holds: what `get` returns has the digest that was asked for, or it raises; `put` of the same bytes twice is one
blob. A blob appears under its name only when it is complete. Not here: which blobs are still needed (gc).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hat_harness.digest import digest_bytes
from hat_registry.errors import InvalidError, NotFoundError, StoreError


@dataclass(frozen=True, slots=True)
class Stored:
    """One blob in a store. `written_at` is in seconds since 1970."""

    digest: str
    size: int
    written_at: float


class BlobStore(Protocol):
    """Where the bytes of harness parts live."""

    def put(self, content: bytes) -> str:
        """Store and return the digest."""

    def get(self, digest: str) -> bytes:
        """The bytes; NotFoundError, or StoreError where they are damaged or the store is away."""

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""

    def digests(self) -> Iterator[str]:
        """All digests in the store, in no order."""

    def stored(self) -> Iterator[Stored]:
        """Everything in the store, with size and age, in no order."""

    def written_at(self, digest: str) -> float | None:
        """When the blob was written, in seconds since 1970; None where it is absent."""

    def delete(self, digest: str) -> None:
        """Remove a blob that nothing refers to any more; absent is fine."""


def _hex(digest: str) -> str:
    prefix, _, hexadecimal = digest.partition(":")
    if prefix != "sha256" or len(hexadecimal) != 64 or not all(c in "0123456789abcdef" for c in hexadecimal):
        raise InvalidError(f"not a digest: {digest[:80]!r}", cure="write sha256: and 64 lower-case hex digits")
    return hexadecimal


def _checked(digest: str, content: bytes) -> bytes:
    if digest_bytes(content) != digest:
        raise StoreError(
            f"blob {digest} is damaged", cure="restore it from a backup: hat ledger verify names its users"
        )
    return content


class FolderBlobs:
    """Blobs as files `<root>/<first two hex>/<hex>`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def _path(self, digest: str) -> Path:
        hexadecimal = _hex(digest)
        return self.root / hexadecimal[:2] / hexadecimal

    def put(self, content: bytes) -> str:
        """Store and return the digest; durable once it returns (fsync of file and folder)."""
        digest = digest_bytes(content)
        path = self._path(digest)
        if path.exists():
            return digest
        try:
            path.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StoreError(
                f"cannot write a blob: {error.strerror}", place=str(self.root), cure="free space"
            ) from error
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes of `digest`."""
        try:
            content = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(f"no blob {digest}", place=str(self.root)) from None
        except OSError as error:
            raise StoreError(f"cannot read a blob: {error.strerror}", place=str(self.root)) from error
        return _checked(digest, content)

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        return self._path(digest).is_file()

    def digests(self) -> Iterator[str]:
        """All digests in the folder."""
        return (one.digest for one in self.stored())

    def stored(self) -> Iterator[Stored]:
        """All blobs in the folder; files that are no blobs are passed over."""
        for path in self.root.glob("??/*"):
            if re.fullmatch("[0-9a-f]{64}", path.name):
                try:
                    about = path.stat()
                except FileNotFoundError:
                    continue
                yield Stored(f"sha256:{path.name}", about.st_size, about.st_mtime)

    def written_at(self, digest: str) -> float | None:
        """When the blob was written."""
        try:
            return self._path(digest).stat().st_mtime
        except FileNotFoundError:
            return None

    def sweep(self, before: float) -> int:
        """Remove what writers left half-written that died before a time; how many."""
        gone = 0
        for path in self.root.glob("??/.new-*"):
            try:
                if path.stat().st_mtime < before:
                    path.unlink()
                    gone += 1
            except FileNotFoundError:
                continue
        return gone

    def delete(self, digest: str) -> None:
        """Remove the blob."""
        self._path(digest).unlink(missing_ok=True)


class S3Blobs:
    """Blobs as objects `<prefix><hex>` of an S3 bucket. `endpoint` is for stores that are not AWS."""

    def __init__(self, bucket: str, *, prefix: str = "blobs/", endpoint: str | None = None, **client: Any) -> None:
        import boto3
        from botocore.config import Config

        settings = Config(connect_timeout=3, read_timeout=10, retries={"max_attempts": 3, "mode": "standard"})
        self.bucket = bucket
        self.prefix = prefix
        self.client = boto3.client("s3", endpoint_url=endpoint, config=settings, **client)

    def _key(self, digest: str) -> str:
        return self.prefix + _hex(digest)

    def put(self, content: bytes) -> str:
        """Store and return the digest; S3 answers only once the object is durable."""
        digest = digest_bytes(content)
        if not self.has(digest):
            self._call("put_object", Key=self._key(digest), Body=content)
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes of `digest`."""
        found = self._call("get_object", Key=self._key(digest))
        if found is None:
            raise NotFoundError(f"no blob {digest}", place=f"s3://{self.bucket}/{self.prefix}")
        content: bytes = found["Body"].read()
        return _checked(digest, content)

    def has(self, digest: str) -> bool:
        """Whether the object is there."""
        return self._call("head_object", Key=self._key(digest)) is not None

    def digests(self) -> Iterator[str]:
        """All digests below the prefix."""
        return (one.digest for one in self.stored())

    def stored(self) -> Iterator[Stored]:
        """All blobs below the prefix; objects that are no blobs are passed over."""
        marker: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=self.prefix, **marker) or {}
            for entry in page.get("Contents", []):
                name = entry["Key"].removeprefix(self.prefix)
                if re.fullmatch("[0-9a-f]{64}", name):
                    yield Stored(f"sha256:{name}", entry["Size"], entry["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            marker = {"ContinuationToken": page["NextContinuationToken"]}

    def written_at(self, digest: str) -> float | None:
        """When the object was written."""
        found = self._call("head_object", Key=self._key(digest))
        return None if found is None else float(found["LastModified"].timestamp())

    def delete(self, digest: str) -> None:
        """Remove the object."""
        self._call("delete_object", Key=self._key(digest))

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any] | None:
        """One S3 call; None where the object is absent."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.client, operation)(Bucket=self.bucket, **arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in {"404", "NoSuchKey", "NotFound"}:
                return None
            raise StoreError(
                f"S3 refused {operation}", place=f"s3://{self.bucket}", cure="check bucket and keys"
            ) from None
        except BotoCoreError as error:
            raise StoreError(
                f"S3 does not answer ({type(error).__name__})", place=f"s3://{self.bucket}", cure="check the endpoint"
            ) from None
        return answer
