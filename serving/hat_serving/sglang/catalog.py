"""Which flags exist in which SGLang, from snapshots that SGLang's own parser made.

Always holds: a snapshot is never edited by hand; a test makes it again from the real SGLang. Not here: what flags mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hat_serving.errors import SettingsError

LAST_CUDA_12 = "0.5.19"
"""SGLang images for CUDA 12 end here (`v0.5.19-cu129`); later ones need CUDA 13 drivers."""

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as SGLang's parser declares it. `kind`: value, switch, boolean (has a `--no-` twin) or other."""

    name: str
    spellings: tuple[str, ...]
    kind: str
    type: str
    choices: tuple[str, ...]
    many: bool
    """Whether it takes several values."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The flags of one version, by every spelling without the dashes."""

    version: str
    flags: Mapping[str, Flag]

    def find(self, name: str) -> Flag | None:
        """The flag of this exact name (`mem-fraction-static`), or None."""
        return self.flags.get(name)

    def longer(self, prefix: str) -> list[str]:
        """Names that argparse would take `prefix` for."""
        return sorted(name for name in self.flags if name.startswith(prefix) and name != prefix)


@cache
def catalog(version: str) -> Catalog:
    """The snapshot of a version. SettingsError where there is none."""
    path = _FOLDER / f"flags-{version}.json"
    if not path.is_file():
        known = ", ".join(versions())
        raise SettingsError(
            f"there is no snapshot of SGLang {version}'s flags",
            place="sglang",
            cure=f"use one of {known}, or make one with hat_serving/sglang/snapshot.py",
        )
    found = json.loads(path.read_text(encoding="utf-8"))
    flags: dict[str, Flag] = {}
    for entry in found["flags"]:
        spellings = tuple(entry["flags"])
        flag = Flag(
            name=spellings[0].removeprefix("--"),
            spellings=spellings,
            kind=entry["kind"],
            type=entry.get("type", ""),
            choices=tuple(entry.get("choices", ())),
            many="nargs" in entry,
        )
        flags.update({spelling.removeprefix("--"): flag for spelling in spellings})
    return Catalog(version, flags)


def versions() -> list[str]:
    """Versions with a snapshot, oldest first."""
    found = [path.stem.removeprefix("flags-") for path in _FOLDER.glob("flags-*.json")]
    return sorted(found, key=release)


def release(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def presence(names: list[str]) -> list[tuple[str, list[str]]]:
    """(flag, the versions that have it) for each name: the table of docs/serving-profiles.md."""
    return [(name, [version for version in versions() if catalog(version).find(name)]) for name in names]
