"""etcd's data and the certificates as they stand after the installation, kept in the build's cache.

A snapshot is named by everything that decides its content: the build and the sources that install. It gets its name
only when complete, and it is copied, never used in place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

from tests.cluster.controlplane import certs, install, manifests, processes

PARTS = ("etcd", "pki")
KEEP_SECONDS = 7 * 86400.0


def path(build: Path, *, llm: bool) -> Path:
    """Where the snapshot of this build and these sources belongs."""
    digest = hashlib.sha256()
    for module in (certs, install, manifests, processes):
        digest.update(Path(module.__file__ or "").read_bytes())
    return build / "snapshots" / f"{digest.hexdigest()[:16]}{'-llm' if llm else ''}"


def restore(source: Path, run: Path) -> bool:
    """Copies the snapshot into `run`. False when there is none."""
    if not source.is_dir():
        return False
    os.utime(source)  # it is in use: the cleaning of another run leaves it alone
    for part in PARTS:
        shutil.copytree(source / part, run / part)
    return True


def save(run: Path, target: Path) -> None:
    """Copies a stopped etcd's data and the certificates under the snapshot's name; those of last week go."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    for part in PARTS:
        shutil.copytree(run / part, partial / part)
    for old in target.parent.iterdir():
        if old != target and time.time() - old.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(partial)  # another run was first
