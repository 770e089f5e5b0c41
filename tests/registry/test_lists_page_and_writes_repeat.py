"""The HTTP side line by line: pages by keyset, idempotency keys under a race, ETags, gzip, problem documents."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hat_registry import harnesses, proposals, releases
from hat_registry.api.app import create_app
from hat_registry.archive import write_tar
from hat_registry.registry import Registry
from tests.registry.conftest import Place, harness, push
from tests.registry.pusher import files
from tests.registry.test_api_translates_and_never_breaks import bearer

PROFILE = "sha256:" + "b" * 64


@pytest.fixture(params=["sqlite", "postgres"])
def somewhere(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue("place" if request.param == "sqlite" else "on_postgres")
    return found


@pytest.fixture
def api(somewhere: Place) -> Iterator[TestClient]:
    registry = Registry(somewhere.database, somewhere.blobs)
    app = create_app(registry, writes_per_s=10_000, send_webhooks=False)
    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers.update(bearer(somewhere, "ada"))
        yield client


def walked(api: TestClient, path: str, cursor: str = "after", limit: int = 3, meanwhile: Any = None) -> list[Any]:
    """All items of a listing, page by page; `meanwhile` is called after the first page."""
    found: list[Any] = []
    following = None
    while True:
        answer = api.get(path, params={"limit": limit, **({cursor: following} if following is not None else {})})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= limit
        found += page["items"]
        following = page["next"]
        if meanwhile is not None:
            meanwhile()
            meanwhile = None
        if following is None:
            return found


def test_every_listing_is_walked_without_gap_or_repeat_while_rows_are_added(api: TestClient, somewhere: Place) -> None:
    digests = [push(somewhere, f"text {number}") for number in range(8)]
    with somewhere.database.write() as tx:
        for digest in digests:
            proposals.propose(tx, somewhere.ada, "harness", "shop", "production", digest, reason="go")
            new = releases.Release(name="shop", model=digest, harness=digest, profile=PROFILE)
            releases.add(tx, somewhere.ada, new)

    def more() -> None:
        push(somewhere, "added while somebody reads")
        with somewhere.database.write() as tx:
            proposals.propose(tx, somewhere.bo, "harness", "shop", "production", digests[0], reason="later")

    numbers = [one["number"] for one in walked(api, "/api/v1/harnesses/shop", "before", meanwhile=more)]
    assert numbers == list(range(8, 0, -1))
    seqs = [one["seq"] for one in walked(api, "/api/v1/ledger", meanwhile=more)]
    assert seqs == list(range(seqs[0], 0, -1))
    before = [one["id"] for one in api.get("/api/v1/proposals").json()["items"]]
    assert [one["id"] for one in walked(api, "/api/v1/proposals", meanwhile=more)] == before
    assert {one["digest"] for one in walked(api, "/api/v1/releases")} == {
        one["digest"] for one in api.get("/api/v1/releases").json()["items"]
    }
    assert len(walked(api, "/api/v1/releases")) == 8


def test_names_are_walked_with_their_versions(api: TestClient, somewhere: Place) -> None:
    for name in ("b", "a", "d", "c", "e"):
        for text in ("one", "two"):
            with somewhere.database.write() as tx:
                files = harnesses.store_blobs(somewhere.blobs, {"prompts/rules.md": text.encode()})
                harnesses.push(tx, somewhere.ada, harness(text, name), files, message=f"{name} says {text}")
    assert [(one["name"], one["versions"]) for one in walked(api, "/api/v1/harnesses", limit=2)] == [
        (name, 2) for name in "abcde"
    ]
    assert [one["name"] for one in api.get("/api/v1/harnesses?search=d says").json()["items"]] == ["d"]
    assert [one["name"] for one in api.get("/api/v1/harnesses?search=%25").json()["items"]] == []


@pytest.mark.parametrize(
    "path", ["/proposals?after=x", "/releases?after=2026~", "/ledger?until=never", "/ledger?limit=0"]
)
def test_a_cursor_that_is_none_is_a_problem(api: TestClient, path: str) -> None:
    answer = api.get(f"/api/v1{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_of_a_key_that_comes_many_times_at_once_one_write_runs(api: TestClient, somewhere: Place) -> None:
    digest = push(somewhere, "one")
    body = {"name": "shop", "pointer": "production", "digest": digest, "reason": "try"}
    answers: list[tuple[int, str]] = []
    gate = threading.Barrier(6)

    def send() -> None:
        gate.wait(timeout=20)
        answer = api.post("/api/v1/proposals", json=body, headers={"Idempotency-Key": "same"})
        answers.append((answer.status_code, answer.text))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(answers) == 6
    assert len(set(answers)) == 1, answers
    assert answers[0][0] == 201
    assert len(api.get("/api/v1/proposals").json()["items"]) == 1
    other = api.post("/api/v1/proposals", json={**body, "reason": "other"}, headers={"Idempotency-Key": "same"})
    assert (other.status_code, other.json()["kind"]) == (409, "conflict")
    assert api.post("/api/v1/proposals", json=body, headers={"Idempotency-Key": "x" * 129}).status_code == 422


def test_a_write_that_failed_keeps_no_key(api: TestClient, somewhere: Place) -> None:
    body = {"name": "shop", "pointer": "production", "digest": PROFILE, "reason": "try"}
    assert api.post("/api/v1/proposals", json=body, headers={"Idempotency-Key": "k"}).status_code == 404
    digest = push(somewhere, "one")
    done = api.post("/api/v1/proposals", json={**body, "digest": digest}, headers={"Idempotency-Key": "k"})
    assert done.status_code == 201


def test_the_same_push_twice_at_once_is_one_version(api: TestClient, somewhere: Place) -> None:
    codes: list[int] = []
    gate = threading.Barrier(4)

    def send() -> None:
        gate.wait(timeout=20)
        answer = api.post("/api/v1/harnesses", params={"message": "m"}, content=write_tar(files(1)))
        codes.append(answer.status_code)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert set(codes) <= {200, 201, 409}
    assert codes.count(201) == 1
    assert len(api.get("/api/v1/harnesses/shop").json()["items"]) == 1


def test_reads_carry_etags_and_answer_304_until_something_moves(api: TestClient, somewhere: Place) -> None:
    one, two = push(somewhere, "one"), push(somewhere, "two")
    url = "/api/v1/harnesses/shop/pointers/staging"
    api.put(url, json={"digest": one})
    tag = api.get(url).headers["etag"]
    unchanged = api.get(url, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    api.put(url, json={"digest": two})
    moved = api.get(url, headers={"If-None-Match": tag})
    assert (moved.status_code, moved.json()["digest"]) == (200, two)
    version = api.get(f"/api/v1/harnesses/shop/versions/{one}")
    assert version.headers["etag"] == f'"{one}"'
    assert "immutable" in version.headers["cache-control"]
    assert "no-cache" in api.get("/api/v1/harnesses/shop/versions/staging").headers["cache-control"]


def test_long_answers_are_compressed_for_whom_it_helps(api: TestClient, somewhere: Place) -> None:
    for number in range(12):
        push(somewhere, f"text {number}")
    with api.stream("GET", "/api/v1/ledger", headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in answer.headers["vary"].lower()
    plain = api.get("/api/v1/ledger", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert json.loads(gzip.decompress(raw)) == plain.json()
    assert len(raw) < len(plain.content) / 2


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/harnesses/nobody/versions/1", 404, "invalid_input"),
        ("GET", "/harnesses/nobody/pointers/production", 404, "invalid_input"),
        ("GET", "/nothing", 404, "invalid_input"),
        ("DELETE", "/harnesses", 405, "usage"),
        ("GET", "/harnesses?limit=many", 422, "invalid_input"),
        ("PUT", "/harnesses/shop/pointers/production", 422, "invalid_input"),
    ],
)
def test_every_refusal_is_a_problem_document(
    api: TestClient, somewhere: Place, method: str, path: str, status: int, kind: str
) -> None:
    answer = api.request(method, f"/api/v1{path}")
    assert (answer.status_code, answer.json()["kind"]) == (status, kind), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "status", "kind", "title"} <= answer.json().keys()


@pytest.mark.parametrize(
    "path",
    [
        "/harnesses?search=%00",
        "/harnesses/%00/versions/1",
        "/harnesses/shop?before=99999999999999999999",
        "/harnesses/shop/versions/9999999",
        "/ledger?after=99999999999999999999",
        "/ledger?until=9999-12-31T23:59:59Z",
        "/ledger/as-of?kind=harness&name=%00&pointer=p&at=0001-01-01",
    ],
)
def test_values_that_no_column_holds_are_never_a_fault_of_the_server(api: TestClient, path: str) -> None:
    answer = api.get(f"/api/v1{path}")
    assert answer.status_code in {200, 404, 422}, answer.text
    if answer.status_code != 200:
        assert answer.headers["content-type"] == "application/problem+json"
