"""The tables, for SQLAlchemy Core. Each row carries a workspace; times are UTC ISO 8601 text with microseconds.

Always holds: `ledger` rows are only ever inserted; versions, blobs and evidence are immutable. Migrations repeat this
(store/migrations); a test compares the two. Not here: queries.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

DIGEST = String(71)
NAME = String(128)
TIME = String(32)

harness_version = Table(
    "harness_version",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("parent", DIGEST, nullable=True),
    Column("author", NAME, nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("manifest", Text, nullable=False),
    UniqueConstraint("workspace", "name", "number", name="uq_harness_version_number"),
    Index("ix_harness_version_digest", "workspace", "digest"),
    Index("ix_harness_version_created", "workspace", "created_at"),
)
"""`manifest` is JSON {"format": 1, "parts": {path: digest}}; `number` counts versions of a name from 1."""

pointer = Table(
    "pointer",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("pointer", NAME, primary_key=True),
    Column("digest", DIGEST, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("moved_by", NAME, nullable=False),
    Column("moved_at", TIME, nullable=False),
    Index("ix_pointer_digest", "workspace", "kind", "digest"),
)
"""`revision` counts moves from 1; a move names the revision that it replaces."""

policy = Table(
    "policy",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("pointer", NAME, primary_key=True),
    Column("approvals", Integer, nullable=False),
    Column("gates", Text, nullable=False),
)
"""A pointer with a row here is protected. `gates` is a JSON list of `hat_registry.gates.Gate`."""

proposal = Table(
    "proposal",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", NAME, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", NAME, nullable=False),
    Column("pointer", NAME, nullable=False),
    Column("from_digest", DIGEST, nullable=True),
    Column("from_revision", Integer, nullable=False),
    Column("to_digest", DIGEST, nullable=False),
    Column("reason", Text, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("author", NAME, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("decided_at", TIME, nullable=True),
    Index("ix_proposal_state", "workspace", "state"),
    Index("ix_proposal_created", "workspace", "created_at", "id"),
    Index("ix_proposal_state_created", "workspace", "state", "created_at", "id"),
)
"""`state`: open, approved, rejected, moved, superseded."""

gate_result = Table(
    "gate_result",
    metadata,
    Column("proposal", String(32), primary_key=True),
    Column("gate", NAME, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("observed", Text, nullable=False),
    Column("threshold", Text, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("evidence", Text, nullable=False),
    Column("at", TIME, nullable=False),
    ForeignKeyConstraint(["proposal"], ["proposal.id"]),
)
"""`outcome`: passed, failed, missing (no evidence). `evidence` is a JSON list of digests."""

approval = Table(
    "approval",
    metadata,
    Column("proposal", String(32), primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("verdict", String(16), nullable=False),
    Column("comment", Text, nullable=False),
    Column("at", TIME, nullable=False),
    ForeignKeyConstraint(["proposal"], ["proposal.id"]),
)

proposal_comment = Table(
    "proposal_comment",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", NAME, nullable=False),
    Column("proposal", String(32), nullable=False),
    Column("author", NAME, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", TIME, nullable=False),
    ForeignKeyConstraint(["proposal"], ["proposal.id"]),
    Index("ix_proposal_comment", "proposal", "at", "id"),
)
"""Rows are only ever inserted."""

evidence = Table(
    "evidence",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("subject", DIGEST, nullable=False),
    Column("type", String(32), nullable=False),
    Column("content", Text, nullable=False),
    Column("author", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
    Index("ix_evidence_subject", "workspace", "subject", "type"),
)
"""`hatstack.evidence/1`: facts about a subject digest (evaluation, canary window, cost)."""

release = Table(
    "release",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("content", Text, nullable=False),
    Column("author", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
    Index("ix_release_name", "workspace", "name", "created_at"),
    Index("ix_release_created", "workspace", "created_at", "digest"),
)
"""`content` is canonical JSON of `hatstack.release/1`."""

ledger_head = Table(
    "ledger_head",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("hash", DIGEST, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", TIME, nullable=False),
    Column("actor", NAME, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("subject", String(256), nullable=False),
    Column("body", Text, nullable=False),
    Column("hash", DIGEST, nullable=False),
    Index("ix_ledger_at", "workspace", "at"),
    Index("ix_ledger_subject", "workspace", "subject", "seq"),
    Index("ix_ledger_kind", "workspace", "kind", "seq"),
    Index("ix_ledger_actor", "workspace", "actor", "seq"),
)
"""`body` is the canonical JSON that `hash` is the digest of; the other columns repeat it for queries."""

account = Table(
    "account",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("display", String(256), nullable=False),
    Column("password", String(256), nullable=True),
    Column("oidc_subject", String(256), nullable=True, unique=True),
    Column("active", Boolean, nullable=False),
    Column("created_at", TIME, nullable=False),
)

grant = Table(
    "role_grant",
    metadata,
    Column("account", NAME, primary_key=True),
    Column("workspace", NAME, primary_key=True),
    Column("harness", NAME, primary_key=True),
    Column("role", String(16), primary_key=True),
    ForeignKeyConstraint(["account"], ["account.id"]),
)
"""`harness` is a harness name or `*`."""

token = Table(
    "token",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("account", NAME, nullable=False),
    Column("workspace", NAME, nullable=False),
    Column("secret_hash", String(64), nullable=False, unique=True),
    Column("label", String(256), nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created_at", TIME, nullable=False),
    Column("expires_at", TIME, nullable=True),
    Column("revoked_at", TIME, nullable=True),
    ForeignKeyConstraint(["account"], ["account.id"]),
)

mute = Table(
    "mute",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("room", NAME, primary_key=True),
    Column("muted_by", NAME, nullable=False),
    Column("muted_at", TIME, nullable=False),
)
"""`room` is a room id or `*` for all rooms."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("request", DIGEST, nullable=False),
    Column("status", Integer, nullable=False),
    Column("response", Text, nullable=False),
    Column("created_at", TIME, nullable=False),
)
