"""What happened in the shop, told by it: views, orders, confirmations, refunds, thumbs. Experiments are judged by these.

Always holds: an event has a key of the sender's own; the same key with the same content counts once, however often and in
whatever order it is sent, and with other content it is refused; money is in whole minor units; a refund is negative and may
come weeks later; viewers, conversations and rooms are pseudonyms here. Not here: HTTP (gateway.experiments), analysis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import BigInteger, Column, Float, MetaData, String, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from hat_harness.digest import digest_json
from hat_registry.store.database import Database

metadata = MetaData()
event = Table(
    "experiment_event",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("type", String(32), nullable=False),
    Column("viewer", String(128), nullable=False, index=True),
    Column("conversation", String(128), nullable=False),
    Column("room", String(128), nullable=False),
    Column("item", String(128), nullable=False),
    Column("order", String(128), nullable=False, index=True),
    Column("value", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    Column("received", Float, nullable=False, index=True),
    Column("content", String(71), nullable=False),
)
"""`value`: minor units of money, or +1 and -1 of a thumb. `content`: digest of what was sent under the key."""
MAX_BATCH = 1000
EARLIEST, LATEST = 0.0, 4_102_444_800.0
"""Times of events in seconds since the epoch; the latest is the year 2100."""
Outcome = Literal["stored", "repeated", "conflict"]


class Event(BaseModel):
    """One event as it is sent. `key` is the sender's idempotency key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(min_length=1, max_length=128)
    type: Literal["item_view", "order_placed", "order_confirmed", "refund", "thumbs"]
    viewer: str = Field(min_length=1, max_length=256)
    conversation: str = Field(default="", max_length=256)
    """As in `X-Hatstack-Conversation`; in a room it follows from room and viewer."""
    room: str = Field(default="", max_length=256)
    item: str = Field(default="", max_length=128)
    order: str = Field(default="", max_length=128)
    """Order that a confirmation or refund belongs to."""
    value: int = Field(default=0, ge=-(10**12), le=10**12)
    """Minor units (cents, fen): above 0 for orders, below 0 for refunds; +1 or -1 for thumbs."""
    at: float | None = Field(default=None, ge=EARLIEST, le=LATEST)
    """When it happened, seconds since the epoch; None: now."""

    @model_validator(mode="after")
    def _means_something(self) -> Event:
        if self.type == "thumbs" and self.value not in (1, -1):
            raise ValueError("a thumb has value 1 or -1")
        if self.type == "refund" and self.value >= 0:
            raise ValueError("a refund has a negative value")
        if self.type in ("order_placed", "order_confirmed") and self.value < 0:
            raise ValueError("an order has no negative value; what is paid back is a refund")
        if self.type in ("order_confirmed", "refund") and not self.order:
            raise ValueError("names its order")
        if self.type == "item_view" and not self.item:
            raise ValueError("names its item")
        return self


class Events:
    """The store of events. Blocking; call it from a thread."""

    def __init__(self, database: Database, pseudonym: Callable[[str], str], workspace: str = "default") -> None:
        self._database = database
        self._pseudonym = pseudonym
        self._workspace = workspace
        with database.write() as tx:
            metadata.create_all(tx)

    def add(self, events: Sequence[Event], now: Callable[[], float] = time.time) -> list[Outcome]:
        """Store a batch as a whole; one outcome per event. A conflict stores nothing of that event alone."""
        received = now()
        found: list[Outcome] = []
        with self._database.write() as tx:
            for one in events:
                content = digest_json(
                    {**one.model_dump(exclude={"at"}), "at": None if one.at is None else repr(one.at)}
                )
                told = postgresql.insert(event) if tx.dialect.name == "postgresql" else sqlite.insert(event)
                row = told.values(**self._row(one, received, content)).on_conflict_do_nothing()
                # Drivers differ in the row count of a conflict; what comes back is sure.
                if tx.execute(row.returning(event.c.key)).first() is not None:
                    found.append("stored")
                    continue
                here = (event.c.workspace == self._workspace, event.c.key == one.key)
                same = tx.execute(select(event.c.content).where(*here)).scalar() == content
                found.append("repeated" if same else "conflict")
        return found

    def forget(self, viewer: str) -> int:
        """Delete the events of a viewer (a pseudonym); how many there were."""
        with self._database.write() as tx:
            mine = (event.c.workspace == self._workspace, event.c.viewer == viewer)
            return tx.execute(delete(event).where(*mine)).rowcount

    def _row(self, one: Event, received: float, content: str) -> dict[str, Any]:
        def known(identity: str) -> str:
            return self._pseudonym(identity) if identity else ""

        return {
            "workspace": self._workspace,
            "key": one.key,
            "type": one.type,
            "viewer": known(one.viewer),
            "conversation": known(one.conversation) or (f"{known(one.room)}.{known(one.viewer)}" if one.room else ""),
            "room": known(one.room),
            "item": one.item,
            "order": one.order,
            "value": one.value,
            "at": received if one.at is None else one.at,
            "received": received,
            "content": content,
        }
