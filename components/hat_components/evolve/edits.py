"""Candidate edits: harness folders, an operator's working copy, proposals; each kept as a copy beside the result.

Always holds: a candidate is loaded and validated before anything is played; what was measured is the copy, whatever
happens to the original afterwards. Not here: writing proposals (propose), measuring (measure).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hat_components.data import require_path
from hat_components.evolve.config import Config
from hat_components.sessions import read_harness
from hat_components.step import InputError
from hat_harness.augment.engine import base_digest
from hat_harness.diff import diff
from hat_harness.load import read_folder
from hat_harness.render import render_system
from hat_harness.spec import Harness

Kind = Literal["base", "folder", "working_copy", "proposal"]
PREFIX = "candidate-"
_TOKEN = 4
"""Bytes of text that count as a token where no tokenizer is at hand."""


@dataclass(frozen=True)
class Edit:
    """One harness to measure."""

    name: str
    kind: Kind
    harness: Harness
    folder: Path
    """Copy that belongs to the result."""
    note: str = ""

    @property
    def digest(self) -> str:
        """Digest of the harness."""
        return base_digest(self.harness)

    @property
    def tokens(self) -> int:
        """Estimated tokens of the system prompt without the room view."""
        return len(render_system(self.harness).encode()) // _TOKEN

    def changes(self, parent: Edit) -> tuple[str, ...]:
        """What differs from `parent`, in meaning; the name that a folder gives itself is left out."""
        found = diff(parent.harness, self.harness)
        return tuple(str(change) for change in found if change.path not in ("name", "description"))


def base_edit(inputs: Mapping[str, Path], out: Path) -> Edit:
    """The harness that evolution begins with."""
    return _kept("base", "base", require_path(inputs, "harness"), out)


def given_edits(config: Config, inputs: Mapping[str, Path], base: Edit, out: Path) -> list[Edit]:
    """The candidates among the inputs, in order; InputError for one that is missing, broken, or equal to another."""
    folders = _candidates(inputs)
    present = sorted(folders)
    wanted = list(config.candidates) or present
    for name in (*wanted, *config.working_copies):
        if name not in present:
            cure = f"candidates: {', '.join(present) or 'none'}"
            raise InputError(f"there is no candidate {name!r}", place="candidates", cure=cure)
    edits: list[Edit] = []
    for name in wanted:
        kind: Kind = "working_copy" if name in config.working_copies else "folder"
        made = _kept(name, kind, folders[name], out)
        twin = next((one for one in (base, *edits) if not made.changes(one)), None)
        if twin is not None:
            raise InputError(f"candidate {name!r} is the same harness as {twin.name!r}", place=str(folders[name]))
        edits.append(made)
    return edits


def _candidates(inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Name → folder: inputs of their own, and the harness folders within the input `candidates`."""
    found = {name.removeprefix(PREFIX): path for name, path in inputs.items() if name.startswith(PREFIX)}
    if "candidates" in inputs:
        found |= {file.parent.name: file.parent for file in require_path(inputs, "candidates").glob("*/harness.yaml")}
    return found


def _kept(name: str, kind: Kind, source: Path, out: Path) -> Edit:
    """Load a folder and copy its files to `out/harnesses/<name>`."""
    harness = read_harness(source)
    folder = out / "harnesses" / name
    write_files(folder, read_folder(source))
    return Edit(name, kind, harness, folder, "" if kind == "base" else harness.description)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a harness folder; what stood there is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in sorted(files.items()):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
