"""A thin synchronous client of the Kubernetes API on the official client's transport. Objects are plain dicts.

The official package brings what is hard: kubeconfigs with exec plugins, in-cluster tokens that rotate, TLS. Its
models know no custom resources, so requests are made by path and resource names are asked from the server. Not here:
retries, watches (kopf).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from hat_serving.canary.errors import ClusterError

Manifest = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
SECONDS = 30.0
MOST_WARNINGS = 100


class Objects(Protocol):
    """What rollouts need of a store of objects: an API server, or a folder (hat_serving.canary.folder)."""

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Manifest | None:
        """The object, None when it does not exist."""

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[Manifest]:
        """All objects, of all namespaces when none is given."""

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Makes it; code 409 when it exists."""

    def patch(
        self, api_version: str, kind: str, name: str, namespace: str, change: object, *, status: bool = False
    ) -> Manifest:
        """A merge patch (a dict) or a JSON patch (a list); code 409 when the object has changed meanwhile."""

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """False when it was not there."""


class Kube:
    """One connection pool. `manager` is the field manager that server-side apply writes under."""

    def __init__(self, api_client: Any, manager: str = "hatstack") -> None:
        self._client = api_client
        self.manager = manager
        self.warnings: list[str] = []
        """What the server has warned of, the newest last: deprecations, Pod Security, unknown fields."""
        self._names: dict[tuple[str, str], tuple[str, bool]] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_kubeconfig(cls, path: Path | None = None, *, context: str | None = None) -> Kube:
        """By a kubeconfig file; None: `KUBECONFIG` or ~/.kube/config."""
        from kubernetes import client, config

        configuration = client.Configuration()
        config.load_kube_config(str(path) if path else None, context=context, client_configuration=configuration)
        return cls(client.ApiClient(configuration))

    @classmethod
    def in_cluster(cls) -> Kube:
        """By the pod's service account."""
        from kubernetes import client, config

        configuration = client.Configuration()
        config.load_incluster_config(client_configuration=configuration)
        return cls(client.ApiClient(configuration))

    def with_token(self, token: str) -> Kube:
        """The same server under another identity."""
        from kubernetes import client

        theirs = self._client.configuration
        configuration = client.Configuration(host=theirs.host, api_key={"authorization": f"Bearer {token}"})
        configuration.ssl_ca_cert = theirs.ssl_ca_cert
        return Kube(client.ApiClient(configuration), self.manager)

    def request(self, method: str, path: str, body: object = None, *, content_type: str = "", **query: str) -> Any:
        """The parsed answer (text when it is not JSON). Raises ClusterError above 399 and when no server answers."""
        import urllib3

        config = self._client.configuration
        headers = {"Content-Type": content_type or "application/json", "Accept": "application/json"}
        if token := config.get_api_key_with_prefix("authorization"):
            headers["Authorization"] = token
        url = f"{config.host}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body)
        try:
            pool = self._client.rest_client.pool_manager
            answer = pool.request(method, url, body=data, headers=headers, timeout=SECONDS, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(0, f"no answer: {error}", place=f"{method} {path}") from error
        text = answer.data.decode()
        self.warnings = [*self.warnings, *answer.headers.getlist("Warning")][-MOST_WARNINGS:]
        if answer.status >= 400:
            raise ClusterError(answer.status, _message(text), place=f"{method} {path}")
        return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str:
        """The URL path of a resource or, without a name, of its collection (all namespaces when none is given)."""
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        with self._lock:
            if (api_version, kind) not in self._names:
                for entry in self.request("GET", base)["resources"]:
                    if "/" not in entry["name"]:
                        self._names[api_version, entry["kind"]] = (entry["name"], entry["namespaced"])
            found = self._names.get((api_version, kind))
        if found is None:
            raise ClusterError(404, f"the server has no {kind} in {api_version}", place=base)
        scope = f"/namespaces/{namespace}" if found[1] and namespace else ""
        return f"{base}{scope}/{found[0]}" + (f"/{name}" if name else "")

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Manifest | None:
        """The object, None when it does not exist."""
        try:
            found: Manifest = self.request("GET", self.path(api_version, kind, name, namespace))
        except ClusterError as error:
            if error.code == 404:
                return None
            raise
        return found

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[Manifest]:
        """All objects; `labelSelector=…` and the like narrow them."""
        return list(self.request("GET", self.path(api_version, kind, "", namespace), **query).get("items") or [])

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """POST with strict field validation."""
        query = {"fieldManager": self.manager, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        path = self.path(manifest["apiVersion"], manifest["kind"], "", manifest["metadata"].get("namespace", ""))
        made: Manifest = self.request("POST", path, manifest, **query)
        return made

    def apply(self, manifest: Manifest, *, force: bool = True, dry_run: bool = False) -> Manifest:
        """Server-side apply with strict field validation."""
        query = {"fieldManager": self.manager, "fieldValidation": "Strict", "force": str(force).lower()}
        query |= {"dryRun": "All"} if dry_run else {}
        metadata = manifest["metadata"]
        path = self.path(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace", ""))
        applied: Manifest = self.request("PATCH", path, manifest, content_type=APPLY, **query)
        return applied

    def patch(
        self, api_version: str, kind: str, name: str, namespace: str, change: object, *, status: bool = False
    ) -> Manifest:
        """A merge patch (a dict) or a JSON patch (a list). A failed `test` of a JSON patch is a conflict, code 409."""
        path = self.path(api_version, kind, name, namespace) + ("/status" if status else "")
        content_type = JSON_PATCH if isinstance(change, list) else MERGE
        # An older definition may know less of the status than this version writes: what it does not know is left out.
        query = {"fieldManager": self.manager, "fieldValidation": "Warn" if status else "Strict"}
        try:
            patched: Manifest = self.request("PATCH", path, change, content_type=content_type, **query)
        except ClusterError as error:
            # The server says only that it is unprocessable; every other reason for 422 names a field.
            if isinstance(change, list) and error.code == 422 and "rejected our request" in error.message:
                raise ClusterError(409, "the object has changed meanwhile", place=f"PATCH {path}") from error
            raise
        return patched

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """False when it was not there."""
        try:
            self.request("DELETE", self.path(api_version, kind, name, namespace))
        except ClusterError as error:
            if error.code == 404:
                return False
            raise
        return True

    def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A token of a service account."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = self.path("v1", "ServiceAccount", account, namespace) + "/token"
        return str(self.request("POST", path, body)["status"]["token"])


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]
