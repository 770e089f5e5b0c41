"""The CRDs, webhook registrations and settings of the programs, from the very modules they were built from.

They are collected once, at build time, as JSON: reading megabytes of YAML on each start would take longer than
applying them. Descriptions inside CRD schemas are dropped, which halves them and changes no validation. Nothing else
is changed here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

KSERVE = "github.com/kserve/kserve"
GATEWAY_API = "sigs.k8s.io/gateway-api"
KEDA = "github.com/kedacore/keda/v2"
SETS: dict[str, tuple[tuple[str, str], ...]] = {
    "crds": (
        (GATEWAY_API, "config/crd/standard/gateway.networking.k8s.io_*s.yaml"),
        (KSERVE, "config/crd/full/serving.kserve.io_*.yaml"),
        (KSERVE, "config/crd/full/clusterstoragecontainer/serving.kserve.io_*.yaml"),
        (KSERVE, "config/crd/full/localmodel/serving.kserve.io_*.yaml"),
        (KEDA, "config/crd/bases/keda.sh_*.yaml"),
    ),
    "settings": ((KSERVE, "config/configmap/inferenceservice.yaml"),),
    "webhooks": ((KSERVE, "config/webhook/manifests.yaml"),),
    "llm-crds": (
        (KSERVE, "config/crd/full/llmisvc/serving.kserve.io_*.yaml"),
        (KSERVE, "config/llmisvc/gateway-inference-extension.yaml"),
        (KSERVE, "test/crds/leaderworkerset.x-k8s.io_leaderworkersets.yaml"),
    ),
    "llm-webhooks": ((KSERVE, "config/webhook/llmisvc/manifests.yaml"),),
    "llm-settings": ((KSERVE, "config/llmisvcconfig/config-*.yaml"),),
}
"""Name of a set → (module, files in it). Upstream's admission policy for upgrades (`vap_`) is left out."""


def place(build: Path) -> Path:
    """Where the manifests of a build lie: another way of collecting them is another folder."""
    return build / f"manifests-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def collect(module_folder: Callable[[str], Path], out: Path) -> None:
    """Writes one `<set>.json` per set: a list of objects. `module_folder` finds a Go module on disk."""
    out.mkdir(parents=True, exist_ok=True)
    roots = {module: module_folder(module) for module in (KSERVE, GATEWAY_API, KEDA)}
    for name, patterns in SETS.items():
        objects: list[Manifest] = []
        for module, pattern in patterns:
            files = sorted(path for path in roots[module].glob(pattern) if "_vap_" not in path.name)
            if not files:
                raise FileNotFoundError(f"{module} has no {pattern}")
            objects += [entry for path in files for entry in _documents(path)]
        (out / f"{name}.json").write_text(json.dumps(objects))


def write(files: Iterable[Path], out: Path) -> None:
    """Writes the objects of YAML files as one JSON list."""
    out.write_text(json.dumps([entry for path in files for entry in _documents(path)]))


def load(folder: Path, name: str) -> list[Manifest]:
    """The objects of one set from a finished build's `manifests/`."""
    loaded: list[Manifest] = json.loads((folder / f"{name}.json").read_text())
    return loaded


def _documents(path: Path) -> Iterable[Manifest]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open() as file:
        for entry in yaml.load_all(file, loader):
            if not entry:
                continue
            entry.pop("status", None)
            entry.get("metadata", {}).pop("creationTimestamp", None)
            yield _without_descriptions(entry) if entry["kind"] == "CustomResourceDefinition" else entry


def _without_descriptions(node: Any) -> Any:
    """Drops schema descriptions. A property that is itself named `description` is an object and stays."""
    if isinstance(node, dict):
        return {k: _without_descriptions(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
    return [_without_descriptions(entry) for entry in node] if isinstance(node, list) else node
