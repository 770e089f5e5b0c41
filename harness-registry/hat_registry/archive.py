"""A harness folder as files: from a folder or a tar, and to a tar. Refuses links, climbing paths and bombs.

Not here: what the files mean (hat_harness.load).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from hat_registry.errors import InvalidError

MAX_FILES = 2_000
MAX_BYTES = 32 * 1024 * 1024
"""Of a whole harness, uncompressed."""

Files = Mapping[str, bytes]


def read_folder(root: Path) -> dict[str, bytes]:
    """All files of a harness folder by POSIX path. Symlinks and files past the limits are refused."""
    found: dict[str, bytes] = {}
    total = 0
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            raise InvalidError("a symlink is not part of a harness", place=str(path), cure="replace it by the file")
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        total += path.stat().st_size
        _within(len(found) + 1, total)
        found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def read_tar(content: bytes) -> dict[str, bytes]:
    """The files of a tar or tar.gz. Links, devices, absolute or climbing paths, and bombs are refused."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name = safe_path(member.name)
                if not member.isreg():
                    raise InvalidError(f"{name} is not a regular file", cure="pack files only")
                total += member.size
                _within(len(found) + 1, total)
                stream = archive.extractfile(member)
                found[name] = stream.read(member.size) if stream else b""
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise InvalidError(f"not a readable tar: {error}", cure="send a tar or tar.gz of the harness folder") from None
    return found


def write_tar(files: Files) -> bytes:
    """A tar of `files` with fixed times and owners: the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size = len(files[name])
            archive.addfile(info, io.BytesIO(files[name]))
    return buffer.getvalue()


def safe_path(name: str) -> str:
    """`name` as a POSIX path inside the folder. Raises InvalidError for one that leaves it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise InvalidError(f"path {name[:120]!r} leaves the harness folder", cure="use relative paths inside it")
    return path.as_posix()


def _within(files: int, size: int) -> None:
    if files > MAX_FILES or size > MAX_BYTES:
        raise InvalidError(
            f"the harness is too large ({files} files, {size} bytes so far)",
            cure=f"stay within {MAX_FILES} files and {MAX_BYTES >> 20} MiB",
        )
