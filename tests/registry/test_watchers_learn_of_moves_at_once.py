"""Moves reach whoever watches, streamed or polled, in order, over restarts; and none who may not know."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hat_harness.digest import harness_digest
from hat_registry import accounts, changes, ledger, mutes, pointers
from hat_registry.api.app import create_app
from hat_registry.archive import read_folder
from hat_registry.client import Client, ClientError
from hat_registry.client.watch import Event, Watch, read_events
from hat_registry.registry import Registry
from tests.registry.conftest import Place, push

SHIPPED = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "react-baseline"


def secret_of(place: Place, name: str = "eve") -> str:
    with place.database.write() as tx:
        actor = accounts.actor_of(tx, name, "default")
        return accounts.issue_token(tx, actor, label="watch", scopes=["read"])[1]


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pause = threading.Event()
    while not server.started and thread.is_alive():
        pause.wait(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


class Heard:
    """What a watch told, and a way to wait for more."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._more:
            self.events.append(event)
            self._more.notify_all()

    def until(self, count: int) -> list[Event]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.events) >= count, 20), self.events
            return list(self.events)


def settled(found: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if found():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come about within 20 s")


def move(place: Place, digest: str, name: str = "shop", pointer: str = "staging") -> None:
    with place.database.write() as tx:
        pointers.move_free(tx, place.ada, "harness", name, pointer, digest)


def app_of(place: Place) -> FastAPI:
    app = create_app(Registry(place.database, place.blobs), send_webhooks=False)
    app.state.hub.every_s = 0.02
    return app


class NoStreams:
    """A proxy that lets nothing but plain answers through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/api/v1/watch":
            await PlainTextResponse("no", 502)(scope, receive, send)
            return
        await self._app(scope, receive, send)


@pytest.mark.parametrize("mode", ["stream", "poll"])
def test_a_move_is_told_and_the_next_read_is_fresh(place: Place, tmp_path: Path, mode: str) -> None:
    one, two = push(place, "one"), push(place, "two")
    move(place, one)
    app: ASGIApp = app_of(place)
    with served(NoStreams(app) if mode == "poll" else app) as url:
        client = Client(url, tmp_path / "cache", token=secret_of(place), ttl_s=3600)
        assert client.resolve("shop", "staging").digest == one
        heard = Heard()
        watch = Watch(client, heard, poll_s=0.05)
        watch.start()
        settled(lambda: watch.mode == mode)
        move(place, two)
        with place.database.write() as tx:
            mutes.mute(tx, place.ada, "room-1")
        told = heard.until(2)
        assert [event.kind for event in told] == ["pointer", "mute"]
        assert (told[0].data["name"], told[0].data["pointer"], told[0].data["digest"]) == ("shop", "staging", two)
        assert told[1].data["room"] == "room-1"
        assert client.resolve("shop", "staging").digest == two
        watch.close()
        assert watch.mode == "off"


def test_a_stream_that_ends_goes_on_where_it_stopped(place: Place, tmp_path: Path) -> None:
    digests = [push(place, text) for text in ("one", "two", "three", "four")]
    app = app_of(place)
    app.state.hub.lifetime_s = 0.0
    with served(app) as url:
        heard = Heard()
        client = Client(url, tmp_path / "cache", token=secret_of(place))
        watch = Watch(client, heard, poll_s=0.05, again_s=0.05)
        watch.start()
        settled(lambda: watch._after is not None)
        for digest in digests:
            move(place, digest)
        told = heard.until(4)
        assert [event.data["digest"] for event in told] == digests
        assert len({event.seq for event in told}) == 4
        watch.close()


def test_a_watch_outlives_the_registry(place: Place, tmp_path: Path) -> None:
    one, two = push(place, "one"), push(place, "two")
    move(place, one)
    with served(app_of(place)) as url:
        port = int(url.rsplit(":", 1)[1])
        client = Client(url, tmp_path / "cache", token=secret_of(place), ttl_s=0.0)
        heard = Heard()
        watch = Watch(client, heard, poll_s=0.05, try_again_s=0.05, again_s=0.05)
        watch.start()
        settled(lambda: watch.mode == "stream")
        assert client.resolve("shop", "staging").digest == one
    settled(lambda: watch.mode == "away")
    assert client.resolve("shop", "staging").stale
    move(place, two)
    config = uvicorn.Config(
        app_of(place), host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert heard.until(1)[0].data["digest"] == two
    assert client.resolve("shop", "staging").digest == two
    watch.close()
    server.should_exit = True
    thread.join(20)


def test_both_ways_tell_the_same(place: Place) -> None:
    app = app_of(place)
    app.state.hub.lifetime_s = 0.0
    digest = push(place, "one")
    move(place, digest)
    move(place, push(place, "two"))
    headers = {"Authorization": f"Bearer {secret_of(place)}"}
    with TestClient(app) as api:
        polled = api.get("/api/v1/changes?after=0", headers=headers).json()
        stream = api.get("/api/v1/watch?after=0", headers=headers)
        assert stream.headers["content-type"].startswith("text/event-stream")
        told = [data for kind, _, data in read_events(io.BytesIO(stream.content)) if kind == "pointer"]
        assert told == polled["items"]
        again = api.get("/api/v1/watch", headers={**headers, "Last-Event-ID": str(polled["items"][0]["seq"])})
        later = [data for kind, _, data in read_events(io.BytesIO(again.content)) if kind == "pointer"]
        assert later == polled["items"][1:]
        ahead = api.get("/api/v1/changes?after=999999", headers=headers).json()
        assert (ahead["reset"], ahead["next"]) == (True, polled["next"])


def test_what_an_account_may_not_read_it_is_not_told(place: Place) -> None:
    move(place, push(place, "one"))
    with place.database.write() as tx:
        accounts.create(tx, accounts.SYSTEM, "nia")
        accounts.give(tx, accounts.SYSTEM, "nia", "viewer", "other")
    headers = {"Authorization": f"Bearer {secret_of(place, 'nia')}"}
    with TestClient(app_of(place)) as api:
        assert api.get("/api/v1/changes?after=0", headers=headers).json()["items"] == []


def test_pages_of_changes_join_up(place: Place) -> None:
    for text in ("one", "two", "three"):
        move(place, push(place, text))
    with place.database.read() as tx:
        whole = changes.since(tx, "default", 0, lambda _: True)
        found, after = [], 0
        while True:
            page = changes.since(tx, "default", after, lambda _: True, limit=1)
            found += page["items"]
            if page["next"] == after:
                break
            after = page["next"]
        assert found == whole["items"]
        assert after == changes.head(tx, "default") == ledger.verify(tx, "default").rows


@pytest.mark.parametrize(
    "stream", [b"data: [1]\n\n", b"data: nonsense\n\n", b"data: " + b"x" * 70_000, b"\xff\n\n"], ids=range(4)
)
def test_a_stream_of_nonsense_is_an_error_not_a_crash(stream: bytes) -> None:
    with pytest.raises((ClientError, ValueError)):
        list(read_events(io.BytesIO(stream)))


def test_a_damaged_cache_is_fetched_anew(place: Place, tmp_path: Path) -> None:
    registry = Registry(place.database, place.blobs)
    version, _ = registry.push(place.ada, read_folder(SHIPPED), message="first")
    move(place, version.digest, version.name)
    token = secret_of(place)
    with served(app_of(place)) as url:
        Client(url, tmp_path / "cache", token=token).harness(version.name, "staging")
        folder = tmp_path / "cache" / "harnesses" / version.digest.removeprefix("sha256:")
        for content in ("not: [a harness", None):
            if content is None:
                (folder / "harness.yaml").unlink()
            else:
                (folder / "harness.yaml").write_text(content)
            _, found = Client(url, tmp_path / "cache", token=token).harness(version.name, "staging")
            assert harness_digest(found) == version.digest
    _, offline = Client(url, tmp_path / "cache", token=token).harness(version.name, "staging")
    assert harness_digest(offline) == version.digest


def test_content_that_is_not_what_was_asked_for_is_refused(place: Place, tmp_path: Path) -> None:
    registry = Registry(place.database, place.blobs)
    version, _ = registry.push(place.ada, read_folder(SHIPPED), message="first")
    other = "sha256:" + "0" * 64

    async def liar(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = scope["path"].replace(other, version.digest).replace("%3A", ":")
        await app(scope, receive, send)

    app = app_of(place)
    with served(liar) as url, pytest.raises(ClientError, match="other content"):
        Client(url, tmp_path / "cache", token=secret_of(place)).by_digest(version.name, other)
    assert not (tmp_path / "cache" / "harnesses" / ("0" * 64)).exists()


def test_an_absent_registry_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    now, asked = [0.0], []
    client = Client("http://127.0.0.1:9", tmp_path / "cache", ttl_s=2.0, clock=lambda: now[0])
    note = tmp_path / "cache" / "pointers" / "shop@staging.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"digest": "sha256:" + "1" * 64, "revision": 1, "urgent": False}))
    real = client.get
    client.get = lambda path: (asked.append(now[0]), real(path))[1]  # type: ignore[method-assign]
    for second in range(200):
        now[0] = float(second)
        assert client.resolve("shop", "staging").stale
    assert asked[:4] == [0.0, 2.0, 6.0, 14.0]
    assert len(asked) < 9


def test_the_client_is_light() -> None:
    heavy = ["torch", "transformers", "kfp", "mlflow", "kserve", "sqlalchemy", "fastapi", "alembic", "boto3", "httpx"]
    code = f"import sys, hat_registry.client.watch; print([m for m in {heavy!r} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"
