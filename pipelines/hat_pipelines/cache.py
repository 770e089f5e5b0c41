"""Results of finished steps by key, so that an equal step is never computed twice.

Always holds: a key is the digest of component, code, config and inputs; an entry is whole or absent; a hit is used
only after its artifacts have been compared with the digests in its result. Files are hard links where the file
system allows it, so an entry costs no space. Not here: which steps may be cached (dag).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785

from hat_components.data import digest_path
from hat_components.step import StepResult
from hat_pipelines.runs import StepFolder

CODE = ("hat_components", "hat_scenarios", "hat_harness", "hat_stats")
"""Packages whose source is part of every key."""


@cache
def code_digest(*further: str) -> str:
    """Digest of the source of the packages that steps are made of, and of `further` ones."""
    hasher = hashlib.sha256()
    for package in (*CODE, *further):
        root = Path(str(importlib.import_module(package).__file__)).parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                hasher.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                hasher.update(hashlib.sha256(path.read_bytes()).digest())
    return "sha256:" + hasher.hexdigest()


def step_key(component: str, config: Mapping[str, Any], inputs: Mapping[str, str], threads: int) -> str:
    """Key of a step; `inputs` maps input name → digest. Threads count, since float sums depend on them."""
    own = (component.rpartition(".")[0],) if "." in component else ()
    parts: dict[str, Any] = {
        "format": 1,
        "component": component,
        "code": code_digest(*own),
        "config": dict(config),
        "inputs": dict(inputs),
        "threads": threads,
    }
    return "sha256:" + hashlib.sha256(rfc8785.dumps(parts)).hexdigest()


@dataclass(frozen=True)
class Removed:
    """What a collection took away."""

    entries: int
    bytes: int


class Cache:
    """Entries below one folder, each named by the hex part of its key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _entry(self, key: str) -> StepFolder:
        return StepFolder(self.root / key.removeprefix("sha256:"))

    def find(self, key: str) -> StepResult | None:
        """The result of an entry whose artifacts are what it says; a damaged entry is removed."""
        entry = self._entry(key)
        result = entry.read_result()
        if result is None:
            return None
        for name, digest in result.digests.items():
            path = entry.artifacts / result.artifacts.get(name, "")
            if not path.exists() or digest_path(path) != digest:
                shutil.rmtree(entry.path, ignore_errors=True)
                return None
        return result

    def take(self, key: str, result: StepResult, step: StepFolder) -> None:
        """Put an entry's artifacts and result into a prepared step folder."""
        shutil.rmtree(step.work, ignore_errors=True)
        entry = self._entry(key)
        _link_tree(entry.artifacts, step.work)
        if entry.progress.exists():
            shutil.copyfile(entry.progress, step.progress)
        step.publish(result)
        os.utime(entry.path)

    def put(self, key: str, step: StepFolder) -> None:
        """Keep a finished step; an entry that stands already is left as it is."""
        entry = self._entry(key)
        if entry.path.exists():
            return
        part = self.root / f".part-{os.getpid()}-{entry.path.name[:16]}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            _link_tree(step.artifacts, part / "artifacts")
            for path in (step.progress, step.result):
                if path.exists():
                    shutil.copyfile(path, part / path.name)
            part.rename(entry.path)
        except FileExistsError:
            pass
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def collect(self, *, older_than_s: float, dry_run: bool = False) -> Removed:
        """Remove entries that were not used for `older_than_s` seconds, and what a killed process left half-written."""
        entries = size = 0
        limit = time.time() - older_than_s
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            if path.stat().st_mtime <= limit:
                entries += 1
                size += sum(f.stat().st_size for f in path.rglob("*") if f.is_file() and f.stat().st_nlink == 1)
                if not dry_run:
                    shutil.rmtree(path, ignore_errors=True)
        return Removed(entries, size)


def _link_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links, or by content where links are not to be had."""
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
