"""Logs are JSON lines with the trace id of their request and no secret; rates are counted for a bounded number of callers."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hat_registry import accounts, as_of, mutes, pointers
from hat_registry.api.app import create_app
from hat_registry.api.limits import Buckets
from hat_registry.errors import LimitedError
from hat_registry.logs import JsonLines, install
from hat_registry.registry import Registry
from tests.registry.conftest import Place, push

TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    made = io.StringIO()
    install(made)
    yield made
    root.handlers[:] = before
    root.setLevel(level)


def client_of(place: Place, **settings: object) -> TestClient:
    app = create_app(Registry(place.database, place.blobs), send_webhooks=False, **settings)  # type: ignore[arg-type]  # fields
    return TestClient(app, raise_server_exceptions=False)


def secret_of(place: Place) -> str:
    with place.database.write() as tx:
        return accounts.issue_token(tx, place.ada, label="x", scopes=["read", "mute"])[1]


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_change_is_logged_with_the_callers_trace_and_without_secrets(place: Place, stream: io.StringIO) -> None:
    secret = secret_of(place)
    headers = {"Authorization": f"Bearer {secret}", "traceparent": f"00-{TRACE}-0123456789abcdef-01"}
    answer = client_of(place).put("/api/v1/mutes/r1?password=hunter2", headers=headers)
    assert answer.headers["x-trace-id"] == TRACE
    told = [line for line in lines(stream) if line["logger"] == "hatstack.access"]
    assert len(told) == 1
    assert {key: told[0][key] for key in ("trace_id", "method", "path", "status")} == {
        "trace_id": TRACE, "method": "PUT", "path": "/api/v1/mutes/r1", "status": 200,
    }  # fmt: skip
    assert secret not in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_an_error_of_ours_has_the_trace_id_in_answer_and_log(
    place: Place, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault\nof two lines")

    monkeypatch.setattr("hat_registry.mutes.rooms", broken)
    answer = client_of(place).get("/api/v1/mutes", headers={"Authorization": f"Bearer {secret_of(place)}"})
    assert answer.status_code == 500
    trace = answer.json()["place"]
    assert len(trace) == 32
    told = [line for line in lines(stream) if line["level"] == "error" and line.get("trace_id") == trace]
    assert any("a fault" in str(line.get("error")) for line in told)
    assert "fault" not in answer.text


def test_reads_are_quiet_unless_asked_for(place: Place, stream: io.StringIO) -> None:
    headers = {"Authorization": f"Bearer {secret_of(place)}"}
    client_of(place).get("/api/v1/mutes", headers=headers)
    assert [line for line in lines(stream) if line["logger"] == "hatstack.access"] == []
    client_of(place, log_requests=True).get("/api/v1/mutes", headers=headers)
    assert len([line for line in lines(stream) if line["logger"] == "hatstack.access"]) == 1


@pytest.mark.parametrize(
    "given", ["", "nonsense", "00-" + "0" * 32 + "-0123456789abcdef-01", "00-" + "x" * 32 + "-1-01"]
)
def test_a_trace_id_that_is_none_is_replaced(place: Place, given: str) -> None:
    answer = client_of(place).get("/healthz", headers={"traceparent": given})
    assert len(answer.headers["x-trace-id"]) == 32
    assert answer.headers["x-trace-id"] not in given


@given(st.text(), st.dictionaries(st.text(min_size=1).filter(str.isidentifier), st.text(), max_size=3))
def test_whatever_is_logged_is_one_line_of_json(message: str, extra: dict[str, str]) -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s", (message,), None)
    for key, value in extra.items():
        record.__dict__.setdefault(key, value)
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == message


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from("abc")), max_size=80))
def test_nobody_within_the_rate_is_refused_and_nobody_beyond_it_gets_more(steps: list[tuple[float, str]]) -> None:
    now = [0.0]
    buckets = Buckets(1.0, 3, clock=lambda: now[0])
    taken: dict[str, list[float]] = {}
    waits: list[int] = []
    for pause, who in steps:
        now[0] += pause
        mine = taken.setdefault(who, [])
        try:
            buckets.spend(who)
        except LimitedError as error:
            waits.append(error.retry_after_s)
            continue
        mine.append(now[0])
    assert all(wait >= 1 for wait in waits)
    assert all(taken.values()), "the first request is never refused"
    for times in taken.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= 3 + (times[last] - times[first]) + 1e-6


def test_callers_are_forgotten_before_memory_is_full() -> None:
    buckets = Buckets(1.0, 1, callers=10)
    for number in range(1000):
        buckets.spend(str(number))
    assert len(buckets._buckets) == 10


def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(place: Place) -> None:
    client = client_of(place)
    codes = [client.get("/api/v1/me", headers={"Authorization": f"Bearer {n}"}).status_code for n in range(40)]
    assert codes.count(401) == 30
    assert codes.count(429) == 10
    assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret_of(place)}"}).status_code == 200


def test_the_fast_read_answers_as_the_described_route(place: Place) -> None:
    digest = push(place, "one")
    with place.database.write() as tx:
        pointers.move_free(tx, place.ada, "harness", "shop", "staging", digest)
    client = client_of(place)
    described = client_of(place)
    del described.app.router.routes[0]  # type: ignore[attr-defined]  # the client types its app as a callable
    headers = {"Authorization": f"Bearer {secret_of(place)}"}
    for path in ("shop/pointers/staging", "shop/pointers/production", "none/pointers/staging"):
        for more in ({}, {"If-None-Match": '"1"'}, {"Authorization": "Bearer x"}):
            one, other = (
                each.get(f"/api/v1/harnesses/{path}", headers={**headers, **more}) for each in (client, described)
            )
            assert (one.status_code, one.text, one.headers.get("etag")) == (
                other.status_code, other.text, other.headers.get("etag"),
            )  # fmt: skip


def test_what_stood_then_is_what_the_rows_say(place: Place) -> None:
    digests = [push(place, text) for text in ("one", "two", "three")]
    stood: list[tuple[int, str]] = []
    for digest in digests:
        with place.database.write() as tx:
            pointers.move_free(tx, place.ada, "harness", "shop", "staging", digest)
            stood.append((as_of.bounds(tx, "default")["last"], digest))
            mutes.mute(tx, place.ada, digest[7:19])
    with place.database.read() as tx:
        for row, digest in stood:
            told = as_of.pointers(tx, "default", row)
            assert [(one["name"], one["pointer"], one["digest"]) for one in told] == [("shop", "staging", digest)]
        assert as_of.pointers(tx, "default", stood[0][0] - 1) == []
        assert as_of.muted(tx, "default", stood[2][0]) == sorted(digest[7:19] for digest in digests[:2])
        assert set(as_of.muted(tx, "default", 10**6)) == mutes.rooms(tx, "default")
        assert as_of.pointers(tx, "default", 10**6, only=frozenset({"other"})) == []
