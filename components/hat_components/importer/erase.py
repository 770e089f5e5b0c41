"""Erases from datasets below a folder: a viewer's records, by pseudonym, or whole datasets that are past their day.

Always holds: a dataset is rewritten under its own name, whole, or left as it was; its digest changes, and so does that of
nothing else; a dataset that only names an erased one as its source is listed, so that what was derived from the viewer's
words (trajectories, models) can be made again. Not here: traces of the gateway (its store), MLflow (erase_mlflow).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from hat_components.data import MANIFEST, Dataset, DatasetWriter, expired, load_manifest, read_lines
from hat_components.importer.scrub import pseudonym


@dataclass
class Erasure:
    """What an erasure did, or would do."""

    pseudonym: str
    records: dict[str, int] = field(default_factory=dict)
    """Dataset folder → records that were removed."""
    derived: dict[str, str] = field(default_factory=dict)
    """Dataset folder → digest of an erased dataset that it was made from and still names."""
    digests: set[str] = field(default_factory=set)
    """What the erased datasets were called before; models carry it as a tag."""
    ids: set[str] = field(default_factory=set)
    """Ids of the records that were removed; trajectories made of them carry them as `item`."""


def erase_viewer(root: Path, viewer: str, key: bytes, *, dry_run: bool = False) -> Erasure:
    """Remove every record of `viewer` (the raw id) from all datasets below `root`.

    Conversations are found by pseudonym, trajectories by the conversations they were made of. Raises `InputError` when
    a dataset's content is not what its digest says: it is not rewritten then.
    """
    found = Erasure(pseudonym(key, viewer))
    folders = sorted(path.parent for path in root.rglob(MANIFEST) if not path.parent.name.startswith("."))
    manifests = {folder: load_manifest(folder) for folder in folders}
    erased: dict[str, str] = {}
    for kind in ("conversations", "trajectories"):
        for folder, manifest in manifests.items():
            if manifest.kind == kind and (count := _erase(folder, manifest, found, dry_run)):
                found.records[str(folder)] = count
                erased[manifest.digest] = str(folder)
    found.digests = set(erased)
    for folder, manifest in manifests.items():
        for digest in manifest.sources.values():
            if digest in erased and str(folder) not in found.records:
                found.derived[str(folder)] = digest
    return found


def erase_expired(root: Path, *, dry_run: bool = False) -> Erasure:
    """Remove every dataset below `root` that is past its `keep_until`; what else was made from one is listed."""
    found = Erasure("")
    folders = sorted(path.parent for path in root.rglob(MANIFEST) if not path.parent.name.startswith("."))
    manifests = {folder: load_manifest(folder) for folder in folders}
    gone = {manifest.digest: folder for folder, manifest in manifests.items() if expired(manifest)}
    for folder, manifest in manifests.items():
        if expired(manifest):
            found.records[str(folder)] = manifest.count
            if not dry_run:
                # Out of the way in one step, so that nobody reads half of it.
                aside = folder.with_name(f".erased-{folder.name}")
                folder.rename(aside)
                shutil.rmtree(aside)
            continue
        for digest in manifest.sources.values():
            if digest in gone:
                found.derived[str(folder)] = digest
    return found


def _erase(folder: Path, manifest: Dataset, found: Erasure, dry_run: bool) -> int:
    """Records of the viewer in one dataset, removed from it unless `dry_run`."""
    removed = 0
    with DatasetWriter(folder, kind=manifest.kind, splits=manifest.splits) as writer:
        for split in manifest.splits:
            for _, line in read_lines(folder, split):
                record = json.loads(line)
                if record.get("viewer") == found.pseudonym or record.get("item") in found.ids:
                    found.ids.add(record["id"])
                    removed += 1
                elif not dry_run:
                    writer.write(split, line)
        if removed and not dry_run:
            writer.finish(
                name=manifest.name,
                purpose=manifest.purpose,
                seed=manifest.seed,
                sources=manifest.sources,
                facts={**manifest.facts, "erased_records": manifest.facts.get("erased_records", 0) + removed},
            )
    return removed
