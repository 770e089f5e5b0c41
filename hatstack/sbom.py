"""A bill of materials of the running environment: `python -m hatstack.sbom` writes CycloneDX 1.5 as JSON.

Always holds: same packages, same bytes. Names every installed distribution with version, licence and package URL. Not
here: the system packages of an image, which its scanner reads from the package database.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions, version
from typing import Any


def components() -> list[dict[str, Any]]:
    """One entry for each distribution, by name."""
    found = {str(one.metadata["Name"]).lower().replace("_", "-"): one for one in distributions()}
    return [_component(name, found[name]) for name in sorted(found)]


def document() -> dict[str, Any]:
    """The whole bill."""
    about = {"type": "application", "name": "hatstack", "version": version("hatstack")}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**about, "purl": f"pkg:pypi/hatstack@{about['version']}"}},
        "components": components(),
    }


def _component(name: str, one: Distribution) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": one.version,
        "purl": f"pkg:pypi/{name}@{one.version}",
    }
    said = [one.metadata[key] for key in ("License-Expression", "License") if key in one.metadata]
    licence = said[0] if said else ""
    if licence and len(licence) < 100:
        made["licenses"] = [{"license": {"name": " ".join(licence.split())}}]
    return made


def main() -> None:
    """Write it to stdout."""
    sys.stdout.write(json.dumps(document(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
