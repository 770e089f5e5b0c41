"""Folders that appear whole or not at all.

Always holds: a name that exists holds everything; what failed half-way leaves only a temporary name, which is removed;
nothing is overwritten. Not here: digests (hat_components.data), what the files mean (qwen, tokenizer).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hat_components.step import StepError
from hat_harness.errors import Kind

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TOLD = (*(f"os error {code}" for code in _FULL), "PytorchStreamWriter failed", "unexpected pos")
"""How libraries say that they could not write: Rust's by number, torch's writer in two ways."""


class StorageError(StepError):
    """A disk is full or a quota is used up; nothing was left under a final name."""

    kind: Kind = "exhausted"


class ExistsError(StepError):
    """The name is taken; a run never overwrites."""

    kind: Kind = "conflict"


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """Turn a full disk into StorageError, also where a library reports it as text."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(f"cannot write: {error.strerror}", place=str(place), cure="free disk space") from error
        raise
    except Exception as error:
        if any(words in str(error) for words in _TOLD):
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


def _sync(folder: Path) -> None:
    """Bring every file to the disk before the name that vouches for it."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
