"""Webhooks are signed so that a receiver can check them, retried with patience, logged, and kept out of inner networks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_registry import accounts, ledger, mutes, outbound, webhooks
from hat_registry.accounts import Actor
from hat_registry.errors import InvalidError, NotFoundError, StoreError
from hat_registry.outbound import networks
from hat_registry.webhook_sender import Sender
from tests.registry.conftest import Place

LOOPBACK = networks(["127.0.0.0/8"])


@dataclass
class Receiver:
    """A server that keeps what it is sent and answers as it is told."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    location: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
            self.send_response(made.answers.pop(0) if made.answers else 200)
            if made.location:
                self.send_header("Location", made.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    yield made
    server.shutdown()


@dataclass
class Clock:
    """Time that a test moves."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def admin(place: Place) -> Actor:
    return accounts.SYSTEM


def add(place: Place, url: str, *kinds: str) -> tuple[str, str]:
    with place.database.write() as tx:
        made, secret = webhooks.add(tx, accounts.SYSTEM, url, kinds, LOOPBACK)
    return str(made["id"]), secret


def mute(place: Place, *rooms: str) -> None:
    for room in rooms:
        with place.database.write() as tx:
            mutes.mute(tx, place.ada, room)


def log(place: Place, identity: str) -> list[dict[str, object]]:
    with place.database.read() as tx:
        return webhooks.deliveries(tx, accounts.SYSTEM, identity)


def sender(place: Place, clock: Clock) -> Sender:
    return Sender(place.database, LOOPBACK, now=clock, timeout_s=5)


def test_a_delivery_is_signed_as_standard_webhooks_says(place: Place, receiver: Receiver) -> None:
    identity, secret = add(place, receiver.url, "mute")
    mute(place, "room-1")
    clock = Clock()
    assert sender(place, clock).round() == 1
    headers, body = receiver.got[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    assert (
        headers["webhook-signature"]
        == "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    )
    assert int(headers["webhook-timestamp"]) == int(clock.now.timestamp())
    told = json.loads(body)
    assert told["type"] == "hatstack.mute"
    with place.database.read() as tx:
        row = ledger.rows(tx, "default", kind="mute")[0]
    assert (told["data"]["subject"], told["data"]["seq"], told["data"]["hash"]) == ("room:room-1", row.seq, row.hash)
    assert [one["state"] for one in log(place, identity)] == ["delivered"]


def test_a_receiver_that_is_down_is_tried_again_with_patience_and_given_up(place: Place, receiver: Receiver) -> None:
    identity, _ = add(place, receiver.url, "mute")
    mute(place, "room-1")
    receiver.answers = [500] * 100
    clock = Clock()
    made = sender(place, clock)
    waits: list[float] = []
    for _ in range(len(webhooks.BACKOFF_S) + 1):
        assert made.round() == 1
        assert made.round() == 0, "it must not be tried again at once"
        entry = log(place, identity)[0]
        if entry["state"] == "given_up":
            break
        due = datetime.fromisoformat(str(entry["next_at"]).replace("Z", "+00:00"))
        waits.append((due - clock.now).total_seconds())
        clock.now = due
    assert tuple(waits) == webhooks.BACKOFF_S
    entry = log(place, identity)[0]
    assert (entry["state"], entry["status"], entry["attempts"]) == ("given_up", 500, len(webhooks.BACKOFF_S) + 1)
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    clock.now += timedelta(days=30)
    assert made.round() == 0
    with place.database.write() as tx:
        webhooks.again(tx, accounts.SYSTEM, identity, str(entry["id"]))
    receiver.answers = []
    clock.now = datetime.now(UTC) + timedelta(seconds=1)
    assert made.round() == 1
    assert log(place, identity)[0]["state"] == "delivered"


def test_every_row_is_told_once_by_two_servers_and_none_from_before(place: Place, receiver: Receiver) -> None:
    mute(place, "before")
    identity, _ = add(place, receiver.url, "mute")
    mute(place, *(f"room-{number}" for number in range(12)))
    clock = Clock()
    both = [sender(place, clock), sender(place, clock)]
    threads = [threading.Thread(target=lambda one=one: [one.round() for _ in range(6)]) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = sorted(json.loads(body)["data"]["subject"] for _, body in receiver.got)
    assert told == sorted(f"room:room-{number}" for number in range(12))
    assert {one["state"] for one in log(place, identity)} == {"delivered"}


def test_a_redirect_is_not_followed(place: Place, receiver: Receiver) -> None:
    identity, _ = add(place, receiver.url, "mute")
    mute(place, "room-1")
    receiver.answers, receiver.location = [302], "http://169.254.169.254/latest/meta-data"
    sender(place, Clock()).round()
    assert (log(place, identity)[0]["status"], log(place, identity)[0]["state"]) == (302, "waiting")
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://10.1.2.3/", "https://192.168.0.1/", "https://172.16.9.9/", "https://[::1]/",
        "https://169.254.169.254/latest/meta-data", "https://[fd00::1]/", "https://[fe80::1]/", "https://0.0.0.0/",
        "https://100.64.0.1/", "https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
        "https://2130706433/", "https://0x7f000001/", "https://127.1/", "https://0177.0.0.1/", "https://224.0.0.1/",
        "https://localhost/", "http://8.8.8.8/", "ftp://8.8.8.8/", "file:///etc/passwd", "gopher://8.8.8.8/",
        "https://user:pass@8.8.8.8/", "https:///nohost", "https://8.8.8.8:99999/", "https://8.8.8.8/a b", "nonsense",
    ],
)  # fmt: skip
def test_an_address_inside_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        outbound.check(url)
    with pytest.raises(InvalidError):
        webhooks._check(url, ())


def test_a_name_that_does_not_resolve_yet_may_be_named(place: Place) -> None:
    with place.database.write() as tx:
        webhooks.add(tx, accounts.SYSTEM, "https://not-there-yet.invalid/", ())
    with pytest.raises(StoreError):
        outbound.check("https://not-there-yet.invalid/")


def test_a_name_that_turns_inside_later_is_refused_when_it_is_sent(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["8.8.8.8", "127.0.0.1"])
    port = int(receiver.url.split(":")[2].split("/")[0])

    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with place.database.write() as tx:
        made, _ = webhooks.add(tx, accounts.SYSTEM, f"https://rebound.example:{port}/", ["mute"])
    mute(place, "room-1")
    Sender(place.database, (), now=Clock(), timeout_s=2).round()
    entry = log(place, str(made["id"]))[0]
    assert "not a public address" in str(entry["error"])
    assert receiver.got == []


def test_the_connection_goes_to_the_address_that_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = outbound.check(receiver.url.replace("127.0.0.1", "localhost"), LOOPBACK + networks(["::1/128"]))
    pinned = outbound.Target(target.url, "http", "changed.example", target.port, target.path, ("127.0.0.1",))
    monkeypatch.setattr(socket, "gethostbyname", lambda *_: pytest.fail("looked up again"))
    assert outbound.post(pinned, b"{}", {})[0] == 200
    assert receiver.got[0][0]["host"] == f"changed.example:{target.port}"


@given(st.ip_addresses())
def test_only_the_public_internet_is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if outbound.public(str(address)):
        assert address.is_global
        inner = (address.is_private, address.is_loopback, address.is_link_local, address.is_multicast)
        assert not any(inner)


def test_secrets_are_shown_once_and_other_workspaces_see_nothing(place: Place, receiver: Receiver) -> None:
    identity, secret = add(place, receiver.url)
    stranger = Actor("mal", "elsewhere", {"*": frozenset({"admin"})})
    with place.database.read() as tx:
        told = json.dumps([webhooks.listing(tx, accounts.SYSTEM), webhooks.get(tx, accounts.SYSTEM, identity)])
        assert secret not in told
        assert webhooks.listing(tx, stranger) == []
        assert secret not in "".join(ledger.export(tx, "default"))
    with place.database.write() as tx, pytest.raises(NotFoundError):
        webhooks.remove(tx, stranger, identity)


def test_a_paused_webhook_is_not_told_even_later(place: Place, receiver: Receiver) -> None:
    identity, _ = add(place, receiver.url, "mute")
    with place.database.write() as tx:
        assert webhooks.set_active(tx, accounts.SYSTEM, identity, False)
    mute(place, "room-1")
    made = sender(place, Clock())
    assert made.round() == 0
    with place.database.write() as tx:
        assert webhooks.set_active(tx, accounts.SYSTEM, identity, True)
    mute(place, "room-2")
    made.round()
    assert [json.loads(body)["data"]["subject"] for _, body in receiver.got] == ["room:room-2"]


def test_the_thread_sends_by_itself_and_stops(place: Place, receiver: Receiver) -> None:
    add(place, receiver.url, "mute")
    made = Sender(place.database, LOOPBACK, every_s=0.01)
    made.start()
    mute(place, "room-1")
    pause = threading.Event()
    for _ in range(1000):
        if receiver.got:
            break
        pause.wait(0.02)
    made.close()
    assert len(receiver.got) == 1
