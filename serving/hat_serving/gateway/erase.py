"""Erases a viewer from a gateway's data folder: conversations, what experiments know of the viewer, and traces.

Always holds: a trace file is rewritten whole or left as it was. Run it on every replica's folder; a shared database is
erased once. Not here: datasets (hat_components.importer.erase), labels (their store).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hat_registry.store.database import Database
from hat_serving.experiment.events import Events
from hat_serving.gateway.app import pseudonym
from hat_serving.gateway.conversations import Conversations


@dataclass(frozen=True, slots=True)
class Erased:
    """What was removed, or would be."""

    conversations: int
    traces: Mapping[str, int]
    """Trace file → lines."""


def erase_viewer(data: Path, viewer: str, key: bytes, *, database: str = "", dry_run: bool = False) -> Erased:
    """Remove everything of `viewer` (the raw id) below `data`. `database` is an SQLAlchemy URL, else the folder's own."""
    unit = pseudonym(key, viewer)
    store = Database(database or f"sqlite:///{data / 'gateway.db'}")
    try:
        conversations = Conversations(store)
        count = conversations.count(unit) if dry_run else conversations.forget(unit)
        if not dry_run:
            # Exposures and turns went with the conversations; what the shop told goes here.
            Events(store, lambda identity: identity).forget(unit)
    finally:
        store.close()
    found = {}
    for path in sorted((data / "traces").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        # Anywhere in the line: a conversation may have a name of its own, and a batch the words of several viewers.
        kept = [line for line in lines if unit not in line]
        if len(kept) < len(lines):
            found[str(path)] = len(lines) - len(kept)
            if not dry_run:
                _replace(path, "".join(kept))
    return Erased(count, found)


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new-", encoding="utf-8", delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)
