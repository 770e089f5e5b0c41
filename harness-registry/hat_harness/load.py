"""Reads and writes harness folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hat_harness.spec import Harness


def load_harness(path: Path, *, strict: bool = True) -> Harness:
    """The harness in a folder; LoadError lists every problem."""
    raise NotImplementedError


def save_harness(harness: Harness, path: Path) -> None:
    """Writes a harness as a folder."""
    raise NotImplementedError


def load_bindings(path: Path) -> dict[str, Any]:
    """The folder's `bindings.yaml`, {} when it has none."""
    raise NotImplementedError
