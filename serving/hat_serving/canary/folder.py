"""Rollouts without a cluster: one JSON file each in a folder, with the API server's verbs and rules.

    <folder>/<namespace>/<name>.json   the resource: metadata, spec, status
    <folder>/events.jsonl              what was told of them, the oldest first

Always holds: a spec is read before it is kept, and never changes but in `paused`, `promote` and `abort`; a write that
names a resource version is refused when the file has changed meanwhile; a file is whole or not there. Only the backend
`gateway` works here, because the others need KServe. Not here: who looks at rollouts (watch).
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import fcntl
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hat_serving.canary.errors import ClusterError, InvalidRolloutError
from hat_serving.canary.kube import Manifest
from hat_serving.canary.spec import KIND, GatewayTarget, read_spec

MUTABLE = ("paused", "promote", "abort")
EVENTS = "events.jsonl"
KEPT_EVENTS = 10_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Folder:
    """The rollouts of one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Manifest | None:
        """A rollout, None when it does not exist."""
        _only_rollouts(kind)
        try:
            found: Manifest = json.loads(self._file(namespace, name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ClusterError(500, f"the file is damaged: {error}", place=str(self._file(namespace, name))) from error
        return found

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[Manifest]:
        """All rollouts, or all events; queries are not understood and leave everything in."""
        if kind == "Event":
            return [entry for entry in self._events() if namespace in ("", entry["metadata"]["namespace"])]
        _only_rollouts(kind)
        files = sorted(self._root.glob(f"{namespace or '*'}/*.json"))
        found = [self.get(api_version, kind, path.stem, path.parent.name) for path in files]
        return [entry for entry in found if entry is not None]

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """A new rollout; an event is written down as it is."""
        if manifest["kind"] == "Event":
            self._tell(manifest)
            return manifest
        _only_rollouts(manifest["kind"])
        _checked(manifest["spec"])
        metadata = manifest["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace") or "default"
        with self._locked():
            if self.get(manifest["apiVersion"], KIND, name, namespace) is not None:
                raise ClusterError(409, f"rollout {name} exists", place=namespace)
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            own = {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now, "generation": 1}
            made = {**manifest, "metadata": {**metadata, **own, "resourceVersion": "1"}}
            if not dry_run:
                self._write(made)
        return made

    def patch(
        self, api_version: str, kind: str, name: str, namespace: str, change: object, *, status: bool = False
    ) -> Manifest:
        """A merge patch; with `status` only the status, else everything but the status."""
        with self._locked():
            found = self.get(api_version, kind, name, namespace)
            if found is None:
                raise ClusterError(404, f"there is no rollout {name}", place=namespace)
            if not isinstance(change, dict):
                raise ClusterError(415, "a folder takes merge patches only", place=name)
            wanted = (change.get("metadata") or {}).get("resourceVersion")
            if wanted not in (None, found["metadata"]["resourceVersion"]):
                raise ClusterError(409, "the object has changed meanwhile", place=name)
            made: Manifest = _merged(
                found, {key: value for key, value in change.items() if (key == "status") is status}
            )
            made["metadata"] = _merged(found["metadata"], {} if status else change.get("metadata") or {})
            if made == found:
                return found
            if made["spec"] != found["spec"]:
                _kept(found["spec"], made["spec"])
                made["metadata"]["generation"] += 1
            made["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
            self._write(made)
        return made

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """Removes a finished rollout at once; another one is marked, and goes once its canary is gone."""
        from hat_serving.canary.state import TERMINAL

        with self._locked():
            found = self.get(api_version, kind, name, namespace)
            if found is None:
                return False
            if (found.get("status") or {}).get("phase", "Pending") in TERMINAL:
                self._file(namespace, name).unlink()
            elif not found["metadata"].get("deletionTimestamp"):
                now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                version = str(int(found["metadata"]["resourceVersion"]) + 1)
                self._write(
                    {**found, "metadata": {**found["metadata"], "deletionTimestamp": now, "resourceVersion": version}}
                )
        return True

    def _file(self, namespace: str, name: str) -> Path:
        for part in (namespace, name):
            if not _NAME.fullmatch(part):
                raise InvalidRolloutError(f"{part[:80]!r} is no name", place="metadata", cure="a-z, 0-9, - and . only")
        return self._root / namespace / f"{name}.json"

    def _write(self, manifest: Manifest) -> None:
        file = self._file(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.new")
        temporary.write_text(json.dumps(manifest, indent=1))
        temporary.replace(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _tell(self, event: Manifest) -> None:
        with self._locked():
            lines = [*self._lines(), json.dumps(event)]
            if len(lines) <= KEPT_EVENTS:
                with (self._root / EVENTS).open("a") as file:
                    file.write(lines[-1] + "\n")
                return
            temporary = self._root / f".{EVENTS}.new"
            temporary.write_text("\n".join(lines[-KEPT_EVENTS // 2 :]) + "\n")
            temporary.replace(self._root / EVENTS)

    def _lines(self) -> builtins.list[str]:
        try:
            return (self._root / EVENTS).read_text().splitlines()
        except FileNotFoundError:
            return []

    def _events(self) -> builtins.list[Manifest]:
        return [json.loads(line) for line in self._lines() if line]


def _only_rollouts(kind: str) -> None:
    if kind != KIND:
        raise ClusterError(0, f"there is no cluster here, and so no {kind}", place="folder")


def _checked(raw: dict[str, Any]) -> None:
    if not isinstance(read_spec(raw).target, GatewayTarget):
        raise InvalidRolloutError(
            "without a cluster only the gateway splits traffic", place="spec.target", cure="backend: gateway"
        )


def _kept(old: dict[str, Any], new: dict[str, Any]) -> None:
    """What the definition's CEL rules say about changes."""
    read_spec(new)
    if any(old.get(key) != new.get(key) for key in (old.keys() | new.keys()) - set(MUTABLE)):
        raise InvalidRolloutError(
            "a rollout cannot be changed under way", place="spec", cure="abort it and start another"
        )
    if old.get("abort") and not new.get("abort"):
        raise InvalidRolloutError("an abort cannot be taken back", place="spec.abort", cure="start another rollout")


def _merged(base: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return change
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
