"""Webhooks: ledger rows sent to addresses that a workspace has named, signed, retried, with a log of deliveries.

Always holds: the ledger is the outbox, so no change is forgotten and none is told that did not commit; a delivery is
signed as Standard Webhooks 1.0 says (HMAC-SHA256 over id, time and body) and made at least once, with the same id at
every attempt; a secret is shown when it is made and never again; addresses pass `outbound.check` when they are named
and before each request. Not here: the thread that sends (webhook_sender), HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from hat_registry import clock, ledger, outbound
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError, InvalidError, NotFoundError, StoreError
from hat_registry.store.access_tables import webhook, webhook_delivery
from hat_registry.store.tables import ledger_head

SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix of Standard Webhooks
BACKOFF_S = (5, 30, 120, 600, 3600, 6 * 3600, 12 * 3600)
"""Wait after each failed attempt; after the last one the delivery is given up."""
LEASE_S = 60
"""A delivery that a sender has taken is left alone for this long."""
KEPT_DAYS = 30
"""How long finished deliveries stay in the log."""
MOST = 50
"""Webhooks of one workspace."""
BATCH = 200


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery that a sender has taken."""

    id: str
    url: str
    secret: str
    body: bytes
    attempts: int
    """Attempts made before this one."""


def add(
    tx: Connection, actor: Actor, url: str, kinds: Sequence[str], allowed: Sequence[outbound.Network] = ()
) -> tuple[dict[str, Any], str]:
    """Name an address: (webhook, secret). It is told of rows that come after this one; no kinds means all."""
    actor.require("policy")
    unknown = sorted(set(kinds) - ledger.KINDS)
    if unknown:
        raise InvalidError(f"unknown ledger kinds {', '.join(unknown)[:120]}", cure=", ".join(sorted(ledger.KINDS)))
    if len(url) > 2048:
        raise InvalidError("the address is too long", cure="at most 2,048 characters")
    _check(url, allowed)
    count = select(func.count()).select_from(webhook).where(webhook.c.workspace == actor.workspace)
    if tx.execute(count).scalar_one() >= MOST:
        raise ConflictError(f"{actor.workspace} has {MOST} webhooks already", cure="remove one first")
    identity, secret = secrets.token_hex(8), SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    data = {"change": "added", "webhook": identity, "url": url, "kinds": sorted(set(kinds))}
    row = ledger.append(tx, actor.workspace, actor.account, "webhook", f"webhook:{identity}", data)
    tx.execute(
        insert(webhook).values(
            id=identity, workspace=actor.workspace, url=url, kinds=json.dumps(sorted(set(kinds))), secret=secret,
            active=True, cursor=row.seq, created_by=actor.account, created_at=row.at,
        )
    )  # fmt: skip
    return get(tx, actor, identity), secret


def listing(tx: Connection, actor: Actor) -> list[dict[str, Any]]:
    """The workspace's webhooks with how their deliveries stand."""
    actor.require("policy")
    counts: dict[str, dict[str, int]] = {}
    told = (
        select(webhook_delivery.c.webhook, webhook_delivery.c.state, func.count())
        .where(webhook_delivery.c.workspace == actor.workspace)
        .group_by(webhook_delivery.c.webhook, webhook_delivery.c.state)
    )
    for identity, state, number in tx.execute(told):
        counts.setdefault(identity, {})[state] = number
    query = select(webhook).where(webhook.c.workspace == actor.workspace).order_by(webhook.c.created_at, webhook.c.id)
    return [{**_shown(row), "deliveries": counts.get(row.id, {})} for row in tx.execute(query)]


def get(tx: Connection, actor: Actor, identity: str) -> dict[str, Any]:
    """One webhook, without its secret."""
    actor.require("policy")
    return _shown(_row(tx, actor, identity))


def set_active(tx: Connection, actor: Actor, identity: str, active: bool) -> bool:
    """Pause or resume; False when nothing changed. What happens while it is paused is not told later."""
    actor.require("policy")
    found = _row(tx, actor, identity)
    if bool(found.active) == active:
        return False
    head = tx.execute(select(ledger_head.c.seq).where(ledger_head.c.workspace == actor.workspace)).scalar() or 0
    tx.execute(update(webhook).where(webhook.c.id == identity).values(active=active, cursor=head))
    data = {"change": "resumed" if active else "paused", "webhook": identity}
    ledger.append(tx, actor.workspace, actor.account, "webhook", f"webhook:{identity}", data)
    return True


def remove(tx: Connection, actor: Actor, identity: str) -> None:
    """Forget a webhook and its deliveries."""
    actor.require("policy")
    _row(tx, actor, identity)
    tx.execute(delete(webhook_delivery).where(webhook_delivery.c.webhook == identity))
    tx.execute(delete(webhook).where(webhook.c.id == identity))
    data = {"change": "removed", "webhook": identity}
    ledger.append(tx, actor.workspace, actor.account, "webhook", f"webhook:{identity}", data)


def deliveries(
    tx: Connection, actor: Actor, identity: str, *, state: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """The delivery log of a webhook, newest first."""
    actor.require("policy")
    _row(tx, actor, identity)
    query = select(webhook_delivery).where(webhook_delivery.c.webhook == identity)
    if state is not None:
        query = query.where(webhook_delivery.c.state == state)
    rows = tx.execute(query.order_by(webhook_delivery.c.seq.desc()).limit(limit))
    return [{key: value for key, value in row._mapping.items() if key != "workspace"} for row in rows]


def again(tx: Connection, actor: Actor, identity: str, delivery: str) -> None:
    """Send a delivery once more, now, whatever became of it."""
    actor.require("policy")
    _row(tx, actor, identity)
    at = clock.text(clock.now())
    here = (webhook_delivery.c.id == delivery, webhook_delivery.c.webhook == identity)
    changed = tx.execute(update(webhook_delivery).where(*here).values(state="waiting", next_at=at, attempts=0))
    if changed.rowcount == 0:
        raise NotFoundError(f"no delivery {delivery[:32]}")


def ping(tx: Connection, actor: Actor, identity: str) -> None:
    """Write a row of kind `webhook` that every webhook which listens to it is told of: a way to see one arrive."""
    actor.require("policy")
    found = _row(tx, actor, identity)
    kinds = json.loads(found.kinds)
    if kinds and "webhook" not in kinds:
        raise InvalidError("this webhook is not told of kind webhook", cure="add the kind, or wait for a change")
    data = {"change": "tested", "webhook": identity}
    ledger.append(tx, actor.workspace, actor.account, "webhook", f"webhook:{identity}", data)


# ---- sending --------------------------------------------------------------------------------------------------


def work(tx: Connection, now: datetime) -> bool:
    """Whether a sender has anything to do: a look that takes no lock."""
    behind = select(webhook.c.id).join(ledger_head, ledger_head.c.workspace == webhook.c.workspace)
    if tx.execute(behind.where(webhook.c.active, webhook.c.cursor < ledger_head.c.seq).limit(1)).first() is not None:
        return True
    late = (webhook_delivery.c.state == "waiting", webhook_delivery.c.next_at <= clock.text(now))
    due = select(webhook_delivery.c.id).join(webhook, webhook.c.id == webhook_delivery.c.webhook)
    return tx.execute(due.where(*late, webhook.c.active).limit(1)).first() is not None


def enqueue(tx: Connection, now: datetime) -> int:
    """Make deliveries of the rows that came since each active webhook's cursor; how many."""
    made = 0
    at = clock.text(now)
    behind = (
        select(webhook, ledger_head.c.seq.label("head"))
        .join(ledger_head, ledger_head.c.workspace == webhook.c.workspace)
        .where(webhook.c.active, webhook.c.cursor < ledger_head.c.seq)
        .order_by(webhook.c.id)
    )
    for hook in tx.execute(behind).all():
        rows = ledger.rows(tx, hook.workspace, after=hook.cursor, limit=BATCH)
        if not rows:
            continue
        moved = tx.execute(
            update(webhook).where(webhook.c.id == hook.id, webhook.c.cursor == hook.cursor).values(cursor=rows[-1].seq)
        )
        if moved.rowcount != 1:
            continue  # another server was faster
        kinds = set(json.loads(hook.kinds))
        new = [
            {"id": f"msg_{secrets.token_hex(12)}", "webhook": hook.id, "workspace": hook.workspace, "seq": row.seq,
             "state": "waiting", "attempts": 0, "next_at": at, "status": None, "error": "", "created_at": at,
             "last_at": None}
            for row in rows
            if not kinds or row.kind in kinds
        ]  # fmt: skip
        if new:
            tx.execute(insert(webhook_delivery), new)
        made += len(new)
    return made


def take(tx: Connection, now: datetime, limit: int = 20) -> list[Due]:
    """Deliveries that are due, leased to the caller for `LEASE_S`."""
    at, until = clock.text(now), clock.text(now + timedelta(seconds=LEASE_S))
    due = (
        select(webhook_delivery, webhook.c.url, webhook.c.secret)
        .join(webhook, webhook.c.id == webhook_delivery.c.webhook)
        .where(webhook_delivery.c.state == "waiting", webhook_delivery.c.next_at <= at, webhook.c.active)
        .order_by(webhook_delivery.c.next_at, webhook_delivery.c.seq)
        .limit(limit)
    )
    taken = []
    for row in tx.execute(due).all():
        mine = (webhook_delivery.c.id == row.id, webhook_delivery.c.next_at == row.next_at)
        if tx.execute(update(webhook_delivery).where(*mine).values(next_at=until)).rowcount != 1:
            continue
        told = ledger.rows(tx, row.workspace, after=row.seq - 1, limit=1)
        taken.append(Due(row.id, row.url, row.secret, _body(told[0]), row.attempts))
    return taken


def settle(tx: Connection, due: Due, now: datetime, *, status: int | None, error: str) -> str:
    """Write down how an attempt went: 2xx is delivered; anything else waits for the next attempt or is given up."""
    attempts = due.attempts + 1
    if status is not None and 200 <= status < 300:
        state, next_at, error = "delivered", now, ""
    elif attempts > len(BACKOFF_S):
        state, next_at = "given_up", now
    else:
        state, next_at = "waiting", now + timedelta(seconds=BACKOFF_S[attempts - 1])
    values = {"state": state, "attempts": attempts, "status": status, "error": error[:256]}
    times = {"next_at": clock.text(next_at), "last_at": clock.text(now)}
    tx.execute(update(webhook_delivery).where(webhook_delivery.c.id == due.id).values(**values, **times))
    return state


def tidy(tx: Connection, now: datetime) -> int:
    """Drop finished deliveries that are older than `KEPT_DAYS` from the log."""
    limit = clock.text(now - timedelta(days=KEPT_DAYS))
    old = (webhook_delivery.c.state != "waiting", webhook_delivery.c.created_at < limit)
    return tx.execute(delete(webhook_delivery).where(*old)).rowcount


def headers(due: Due, now: datetime) -> dict[str, str]:
    """The headers of an attempt, its signature among them."""
    stamp = str(int(now.timestamp()))
    return {
        "Content-Type": "application/json",
        "User-Agent": "hatstack-webhook/1",
        "webhook-id": due.id,
        "webhook-timestamp": stamp,
        "webhook-signature": sign(due.secret, due.id, stamp, due.body),
    }


def sign(secret: str, identity: str, stamp: str, body: bytes) -> str:
    """The signature header of Standard Webhooks: `v1,` and the base64 of an HMAC-SHA256."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{identity}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _check(url: str, allowed: Sequence[outbound.Network]) -> None:
    """Refuse an address that must not be asked; a name that does not resolve yet is checked again before each request."""
    outbound.check(url, allowed, resolve=False)
    try:
        outbound.check(url, allowed)
    except StoreError:
        return


def _body(row: ledger.Row) -> bytes:
    told = {"type": f"hatstack.{row.kind}", "timestamp": row.at, "data": {
        "workspace": row.workspace, "seq": row.seq, "actor": row.actor, "kind": row.kind, "subject": row.subject,
        "data": dict(row.data), "hash": row.hash}}  # fmt: skip
    return json.dumps(told, ensure_ascii=False, sort_keys=True).encode()


def _row(tx: Connection, actor: Actor, identity: str) -> Any:
    found = tx.execute(select(webhook).where(webhook.c.id == identity, webhook.c.workspace == actor.workspace)).first()
    if found is None:
        raise NotFoundError(f"no webhook {identity[:32]}", place=actor.workspace)
    return found


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "url": row.url,
        "kinds": json.loads(row.kinds),
        "active": bool(row.active),
        "cursor": row.cursor,
        "created_by": row.created_by,
        "created_at": row.created_at,
    }
