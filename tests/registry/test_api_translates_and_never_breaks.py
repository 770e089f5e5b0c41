"""The HTTP side: who may do what, repeated writes, conditional reads, and a client that outlives an outage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient

from hat_harness.digest import harness_digest
from hat_harness.load import load_harness
from hat_registry import accounts
from hat_registry.api.app import create_app
from hat_registry.api.limits import Buckets
from hat_registry.archive import read_folder, write_tar
from hat_registry.client import Client, ClientError
from hat_registry.errors import InvalidError
from hat_registry.registry import Registry
from tests.registry.conftest import Place

HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"
SHIPPED = HARNESSES / "react-baseline"


@pytest.fixture
def api(place: Place) -> Iterator[TestClient]:
    registry = Registry(place.database, place.blobs)
    with TestClient(create_app(registry), raise_server_exceptions=False) as client:
        yield client


def bearer(place: Place, who: str, *scopes: accounts.Permission) -> dict[str, str]:
    actor = getattr(place, who)
    held = scopes or tuple(sorted(p for p in accounts.PERMISSIONS["admin"] if actor.may(p)))
    with place.database.write() as tx:
        _, secret = accounts.issue_token(tx, actor, label="test", scopes=held)
    return {"Authorization": f"Bearer {secret}"}


def pushed(api: TestClient, headers: dict[str, str]) -> dict[str, object]:
    tar = write_tar(read_folder(SHIPPED))
    answer = api.post("/api/v1/harnesses", params={"message": "first"}, content=tar, headers=headers)
    assert answer.status_code in {200, 201}, answer.text
    made: dict[str, object] = answer.json()
    return made


def test_without_credentials_every_route_answers_401(api: TestClient) -> None:
    schema = api.get("/api/v1/openapi.json").json()
    api.app.state.wrong = Buckets(1000, 1000)  # type: ignore[attr-defined]  # the client types its app as a callable
    for path, operations in schema["paths"].items():
        for method in operations:
            filled = path.replace("{name}", "x").replace("{selector}", "x").replace("{pointer}", "x")
            answer = api.request(method, filled, headers={"Authorization": "Bearer nonsense"})
            assert answer.status_code == 401, (method, path, answer.status_code)
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_push_is_repeatable_and_comes_back_byte_for_byte(api: TestClient, place: Place) -> None:
    headers = bearer(place, "ada")
    first, again = pushed(api, headers), pushed(api, headers)
    assert first["changed"] is True
    assert again["changed"] is False
    assert first["digest"] == again["digest"] == harness_digest(load_harness(SHIPPED))
    archive = api.get(f"/api/v1/harnesses/react-baseline/versions/{first['digest']}/archive", headers=headers)
    assert archive.content == write_tar(read_folder(SHIPPED))


def test_conditional_reads_answer_304(api: TestClient, place: Place) -> None:
    headers = bearer(place, "ada")
    url = f"/api/v1/harnesses/react-baseline/versions/{pushed(api, headers)['digest']}"
    tag = api.get(url, headers=headers).headers["etag"]
    assert api.get(url, headers={**headers, "If-None-Match": tag}).status_code == 304


def test_a_viewer_reads_and_is_told_which_role_may_write(api: TestClient, place: Place) -> None:
    pushed(api, bearer(place, "ada"))
    headers = bearer(place, "eve")
    assert api.get("/api/v1/harnesses", headers=headers).json()["items"][0]["name"] == "react-baseline"
    refused = api.post("/api/v1/harnesses", params={"message": "x"}, content=b"", headers=headers)
    assert refused.status_code in {403, 422}
    muted = api.put("/api/v1/mutes/room-1", headers=headers)
    assert muted.status_code == 403
    assert "needs one of" in muted.json()["cure"]


def test_a_token_does_no_more_than_its_scopes(api: TestClient, place: Place) -> None:
    headers = bearer(place, "ada", "read")
    assert api.get("/api/v1/harnesses", headers=headers).status_code == 200
    assert api.put("/api/v1/mutes/room-1", headers=headers).status_code == 403


def test_an_idempotency_key_runs_a_write_once(api: TestClient, place: Place) -> None:
    headers = {**bearer(place, "ada"), "Idempotency-Key": "k1"}
    digest = pushed(api, bearer(place, "ada"))["digest"]
    body = {"name": "react-baseline", "pointer": "production", "digest": digest, "reason": "try"}
    first = api.post("/api/v1/proposals", json=body, headers=headers)
    again = api.post("/api/v1/proposals", json=body, headers=headers)
    assert first.json() == again.json()
    other = api.post("/api/v1/proposals", json={**body, "reason": "other"}, headers=headers)
    assert other.status_code == 409
    assert len(api.get("/api/v1/proposals", headers=headers).json()["items"]) == 1


def test_the_whole_way_to_production_and_back(api: TestClient, place: Place) -> None:
    ada, bo = bearer(place, "ada"), bearer(place, "bo")
    digest = pushed(api, ada)["digest"]
    body = {"name": "react-baseline", "pointer": "production", "digest": digest, "reason": "first release"}
    identity = api.post("/api/v1/proposals", json=body, headers=ada).json()["id"]
    assert api.post(f"/api/v1/proposals/{identity}/promote", headers=ada).status_code == 403
    approve = {"verdict": "approve"}
    assert api.post(f"/api/v1/proposals/{identity}/decision", json=approve, headers=ada).status_code == 403
    assert api.post(f"/api/v1/proposals/{identity}/decision", json=approve, headers=bo).status_code == 200
    moved = api.post(f"/api/v1/proposals/{identity}/promote", headers=ada)
    assert moved.json()["digest"] == digest
    rollback = "/api/v1/harnesses/react-baseline/pointers/production/rollback"
    refused = api.post(rollback, json={"reason": "bad"}, headers=bo)
    assert refused.status_code == 409
    assert "no earlier position" in refused.json()["title"]
    assert api.get("/api/v1/ledger/verify", headers=ada).json()["rows"] >= 4


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b broken gzip"])
def test_a_broken_archive_is_a_clear_422(api: TestClient, place: Place, content: bytes) -> None:
    answer = api.post("/api/v1/harnesses", params={"message": "x"}, content=content, headers=bearer(place, "ada"))
    assert answer.status_code == 422
    assert answer.json()["kind"] == "invalid_input"


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "c\\d"])
def test_an_archive_cannot_climb_out(name: str) -> None:
    from hat_registry.archive import read_tar

    with pytest.raises(InvalidError, match="leaves the harness folder"):
        read_tar(write_tar({name: b"x"}))


def test_read_only_mode_refuses_writes(place: Place) -> None:
    app = create_app(Registry(place.database, place.blobs), read_only=True)
    with TestClient(app) as client:
        headers = bearer(place, "ada")
        assert client.get("/api/v1/harnesses", headers=headers).status_code == 200
        refused = client.put("/api/v1/mutes/room-1", headers=headers)
    assert refused.status_code == 403
    assert "read-only" in refused.json()["title"]


def test_the_client_checks_caches_and_outlives_the_registry(place: Place, tmp_path: Path) -> None:
    registry = Registry(place.database, place.blobs)
    version, _ = registry.push(place.ada, read_folder(SHIPPED), message="first")
    from hat_registry import pointers

    with place.database.write() as tx:
        pointers.move_free(tx, place.ada, "harness", version.name, "staging", version.digest)
    config = uvicorn.Config(create_app(registry), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for_start = threading.Event()
    while not server.started and thread.is_alive():
        wait_for_start.wait(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    token = bearer(place, "eve", "read")["Authorization"].removeprefix("Bearer ")
    url, now = f"http://127.0.0.1:{port}", [0.0]
    client = Client(url, tmp_path / "cache", token=token, clock=lambda: now[0])
    resolved, harness = client.harness(version.name, "staging")
    assert (resolved.digest, resolved.stale) == (version.digest, False)
    assert harness_digest(harness) == version.digest
    with pytest.raises(ClientError, match="no pointer") as missing:
        client.resolve(version.name, "production")
    assert missing.value.kind == "invalid_input"
    server.should_exit = True
    thread.join(timeout=20)
    now[0] = 60.0
    assert client.resolve(version.name, "staging").stale
    restarted = Client(url, tmp_path / "cache", token=token)
    again, offline = restarted.harness(version.name, "staging")
    assert again.stale
    assert offline == harness
    with pytest.raises(ClientError, match="does not answer"):
        Client(url, tmp_path / "empty").resolve(version.name, "staging")
