"""Persistent volume claims: every claim gets a folder, as a provisioner would give it a disk.

The claim is bound by Kubernetes' own controller to a PersistentVolume made here; the folder stays while the cluster runs, so data
outlive pods. Not here: sizes, access modes, storage classes (any will do).
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.controlplane.api import Api, Manifest


async def provision(api: Api, folder: Path) -> None:
    """Follows claims until it is cancelled."""
    async for event in api.watch("/api/v1/persistentvolumeclaims"):
        for claim in event[1] if event[0] == "LIST" else [event[1]]:
            if (
                event[0] != "DELETED"
                and not claim["spec"].get("volumeName")
                and "deletionTimestamp" not in claim["metadata"]
            ):
                await api.apply(_volume(claim, folder))


def place(folder: Path, namespace: str, claim: str) -> Path:
    """Where a claim's data lie."""
    return folder / f"{namespace}_{claim}"


def _volume(claim: Manifest, folder: Path) -> Manifest:
    metadata, spec = claim["metadata"], claim["spec"]
    path = place(folder, metadata["namespace"], metadata["name"])
    path.mkdir(parents=True, exist_ok=True)
    reference = {
        "kind": "PersistentVolumeClaim",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"claim-{metadata['uid']}"},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName") or "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "hostPath": {"path": str(path)},
        },
    }
