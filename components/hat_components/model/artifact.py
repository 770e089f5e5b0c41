"""Folders and files that appear whole or not at all, and their digests.

Always holds: a name that exists holds everything; what failed half-way leaves only a temporary name, which is removed;
nothing is overwritten. The digest of a folder is SHA-256 over RFC 8785 JSON of its files' digests, as for a harness.
Not here: what the files mean (qwen, tokenizer).
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rfc8785

from hat_components.step import StepError
from hat_harness.errors import Kind

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StorageError(StepError):
    """A disk is full or a quota is used up; nothing was left under a final name."""

    kind: Kind = "exhausted"


class ExistsError(StepError):
    """The name is taken; a run never overwrites."""

    kind: Kind = "conflict"


def file_digest(path: Path) -> str:
    """`sha256:` of the raw bytes."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """`sha256:` over all files below `folder`, by relative path."""
    parts = {
        path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return "sha256:" + hashlib.sha256(rfc8785.dumps({"format": 1, "parts": parts})).hexdigest()


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn a full disk into StorageError, also where a Rust library reports it as text."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(f"cannot write: {error.strerror}", place=str(place), cure="free disk space") from error
        raise
    except Exception as error:
        if any(f"os error {code}" in str(error) for code in _FULL):
            raise StorageError(f"cannot write: {error}", place=str(place), cure="free disk space") from error
        raise


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A temporary folder beside `final` that becomes `final` when the block ends well."""
    if final.exists():
        raise ExistsError("it exists already", place=str(final), cure="give a new output folder")
    draft = final.with_name(f".{final.name}.{os.getpid()}.part")
    with disk_errors(final):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            yield draft
            _sync(draft)
            draft.replace(final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def write_file(final: Path, data: bytes) -> None:
    """Write or replace one file, whole or not at all."""
    draft = final.with_name(f".{final.name}.{os.getpid()}.part")
    with disk_errors(final):
        try:
            with draft.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(final)
        finally:
            draft.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Bring every file to the disk before the name that vouches for it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
