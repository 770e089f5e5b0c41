"""A container's environment: its own variables, ConfigMaps, Secrets, the downward API; `$(NAME)` references expanded.

The machine's environment is not inherited: a container sees what its image and its pod say, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

from tests.cluster.controlplane.api import Manifest
from tests.cluster.controlplane.certs import API_SERVICE_IP

REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
Fetch = Callable[[str, str, bool], Awaitable[dict[str, bytes]]]
"""(kind, name, optional) → keys of a ConfigMap or Secret in the pod's namespace."""


async def environment(pod: Manifest, container: Manifest, base: Mapping[str, str], fetch: Fetch) -> dict[str, str]:
    """All variables of `container`. `base`: what its image sets. Raises what `fetch` raises."""
    known = {**base, "KUBERNETES_SERVICE_HOST": API_SERVICE_IP, "KUBERNETES_SERVICE_PORT": "443"}
    for source in container.get("envFrom") or []:
        kind, reference = (
            ("ConfigMap", source.get("configMapRef"))
            if "configMapRef" in source
            else ("Secret", source.get("secretRef"))
        )
        found = await fetch(kind, reference["name"], bool(reference.get("optional")))
        known |= {source.get("prefix", "") + key: value.decode() for key, value in found.items()}
    for entry in container.get("env") or []:
        source = entry.get("valueFrom")
        if source is None:
            known[entry["name"]] = expand(entry.get("value", ""), known)
        elif (value := await _referenced(pod, container, source, fetch)) is not None:
            known[entry["name"]] = value
    return known


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` → its value; an unknown name stays as written; `$$` is a dollar sign."""

    def one(match: re.Match[str]) -> str:
        return "$" if match.group(0) == "$$" else known.get(match.group(1), match.group(0))

    return REFERENCE.sub(one, text)


def field(pod: Manifest, path: str) -> str:
    """A downward-API field, e.g. `metadata.name` or `metadata.labels['app']`. Unknown ones are empty."""
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(match.group(1)) or {}).get(match.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = pod["metadata"].get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    node: object = pod
    for step in path.split("."):
        node = node.get(step, "") if isinstance(node, dict) else ""
    return str(node)


async def _referenced(pod: Manifest, container: Manifest, source: Manifest, fetch: Fetch) -> str | None:
    """The value behind `valueFrom`; None when it is optional and missing."""
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
        return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
    kind, key = ("ConfigMap", "configMapKeyRef") if "configMapKeyRef" in source else ("Secret", "secretKeyRef")
    reference = source[key]
    found = await fetch(kind, reference["name"], bool(reference.get("optional")))
    if reference["key"] in found:
        return found[reference["key"]].decode()
    if reference.get("optional"):
        return None
    from tests.cluster.controlplane.pods.volumes import MissingReferenceError

    raise MissingReferenceError(f"{kind} {reference['name']} has no key {reference['key']}")
