"""Tables of invitations and webhooks, for SQLAlchemy Core. Each row carries a workspace; times are UTC ISO 8601 text.

Always holds: they share the registry's metadata and its migrations. Not here: queries (invitations, webhooks).
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKeyConstraint, Index, Integer, String, Table, Text, UniqueConstraint

from hat_registry.store.tables import NAME, TIME, metadata

invitation = Table(
    "invitation",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", NAME, nullable=False),
    Column("secret_hash", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("created_by", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("expires_at", TIME, nullable=False),
    Column("used_at", TIME, nullable=True),
)
"""A link that makes one account with `role`, once."""

webhook = Table(
    "webhook",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", NAME, nullable=False),
    Column("url", String(2048), nullable=False),
    Column("kinds", Text, nullable=False),
    Column("secret", String(128), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("cursor", Integer, nullable=False),
    Column("created_by", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
    Index("ix_webhook_workspace", "workspace", "created_at"),
)
"""`kinds` is a JSON list of ledger kinds; `cursor` is the last ledger row that was looked at."""

webhook_delivery = Table(
    "webhook_delivery",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("webhook", String(32), nullable=False),
    Column("workspace", NAME, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", TIME, nullable=False),
    Column("status", Integer, nullable=True),
    Column("error", String(256), nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("last_at", TIME, nullable=True),
    ForeignKeyConstraint(["webhook"], ["webhook.id"], ondelete="CASCADE"),
    UniqueConstraint("webhook", "seq", name="uq_webhook_delivery_seq"),
    Index("ix_webhook_delivery_due", "state", "next_at"),
)
"""One ledger row for one webhook. `state`: waiting, delivered or given_up; `status` is the last HTTP status."""
