"""A pod's volumes as folders: emptyDir, configMap, secret, downwardAPI, projected with tokens, hostPath, claims.

What a volume needs may not be there yet: `MissingReferenceError` says what is missing, and the pod tries again, as a
kubelet does. Contents are written once, at the pod's start.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.api import Api, Manifest
from tests.cluster.controlplane.errors import ApiError, ControlPlaneError
from tests.cluster.controlplane.pods.claims import place
from tests.cluster.controlplane.pods.environment import field

TOKEN_SECONDS = 3607


class MissingReferenceError(ControlPlaneError):
    """Something that the pod refers to does not exist (yet)."""


async def prepare(api: Api, pod: Manifest, folder: Path, claims: Path) -> dict[str, Path]:
    """Writes every volume below `folder`; volume name → its path. `claims`: where persistent claims keep their data."""
    ready: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        name = volume["name"]
        if "hostPath" in volume:
            ready[name] = Path(volume["hostPath"]["path"])
            continue
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            ready[name] = place(claims, pod["metadata"]["namespace"], claim)
            continue
        path = folder / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        for source in _sources(volume):
            for relative, content in (await _contents(api, pod, source)).items():
                target = path / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        ready[name] = path
    return ready


async def fetch(api: Api, kind: str, namespace: str, name: str, *, optional: bool) -> dict[str, bytes]:
    """The keys of a ConfigMap or Secret. Raises MissingReferenceError when it is missing and not optional."""
    try:
        found = await api.request("GET", await api.path("v1", kind, namespace, name))
    except ApiError as error:
        if error.code != 404:
            raise
        if optional:
            return {}
        raise MissingReferenceError(f"{kind} {namespace}/{name} does not exist") from error
    data = found.get("data") or {}
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in data.items()} | binary


def _sources(volume: Manifest) -> list[Manifest]:
    if "projected" in volume:
        return list(volume["projected"]["sources"])
    if "secret" in volume:
        return [{"secret": {**volume["secret"], "name": volume["secret"]["secretName"]}}]
    return [{kind: volume[kind]} for kind in ("configMap", "downwardAPI") if kind in volume]


async def _contents(api: Api, pod: Manifest, source: Manifest) -> dict[str, bytes]:
    """Relative path → content of one source."""
    namespace = pod["metadata"]["namespace"]
    if "serviceAccountToken" in source:
        return await _token(api, pod, source["serviceAccountToken"])
    if "downwardAPI" in source:
        items = source["downwardAPI"].get("items") or []
        return {
            item["path"]: field(pod, item["fieldRef"]["fieldPath"]).encode() for item in items if "fieldRef" in item
        }
    kind = "Secret" if "secret" in source else "ConfigMap"
    wanted = source.get("secret") or source["configMap"]
    optional = bool(wanted.get("optional"))
    found = await fetch(api, kind, namespace, wanted["name"], optional=optional)
    if not wanted.get("items"):
        return found
    missing = [item["key"] for item in wanted["items"] if item["key"] not in found]
    if missing and not optional:
        raise MissingReferenceError(f"{kind} {namespace}/{wanted['name']} has no key {', '.join(missing)}")
    return {item["path"]: found[item["key"]] for item in wanted["items"] if item["key"] in found}


async def _token(api: Api, pod: Manifest, wish: dict[str, Any]) -> dict[str, bytes]:
    """A real token of the pod's service account, bound to the pod."""
    metadata = pod["metadata"]
    account = pod["spec"].get("serviceAccountName") or "default"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    spec: dict[str, Any] = {"expirationSeconds": wish.get("expirationSeconds", TOKEN_SECONDS), "boundObjectRef": bound}
    if wish.get("audience"):
        spec["audiences"] = [wish["audience"]]
    path = await api.path("v1", "ServiceAccount", metadata["namespace"], account)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await api.request("POST", f"{path}/token", body)
    return {wish["path"]: str(answer["status"]["token"]).encode()}
