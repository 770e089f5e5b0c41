"""First schema: versions, pointers, proposals, evidence, releases, ledger, accounts.

Frozen: it repeats the tables as they were, so that a later change of `tables` cannot change what this revision makes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
DIGEST, NAME, LONG, SHORT, WORD = sa.String(71), sa.String(128), sa.String(256), sa.String(32), sa.String(16)
TABLES = (
    "idempotency", "mute", "token", "role_grant", "account", "approval", "gate_result", "proposal",
    "ledger", "ledger_head", "release", "evidence", "policy", "pointer", "harness_version",
)  # fmt: skip


def upgrade() -> None:
    """Create all tables of version 1."""
    _versions()
    _proposals()
    _ledger()
    _accounts()
    _extras()
    _facts()


def downgrade() -> None:
    """Drop them again; only for tests, since it loses the ledger."""
    for name in TABLES:
        op.drop_table(name)


def _accounts() -> None:
    op.create_table(
        "account",
        sa.Column("id", NAME, nullable=False),
        sa.Column("display", LONG, nullable=False),
        sa.Column("password", LONG, nullable=True),
        sa.Column("oidc_subject", LONG, nullable=True),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("oidc_subject"),
    )
    op.create_table(
        "role_grant",
        sa.Column("account", NAME, nullable=False),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("harness", NAME, nullable=False),
        sa.Column("role", WORD, nullable=False),
        sa.ForeignKeyConstraint(
            ["account"],
            ["account.id"],
        ),
        sa.PrimaryKeyConstraint("account", "workspace", "harness", "role"),
    )
    op.create_table(
        "token",
        sa.Column("id", SHORT, nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("label", LONG, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.Column("expires_at", SHORT, nullable=True),
        sa.Column("revoked_at", SHORT, nullable=True),
        sa.ForeignKeyConstraint(
            ["account"],
            ["account.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("secret_hash"),
    )


def _extras() -> None:
    op.create_table(
        "idempotency",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("key", NAME, nullable=False),
        sa.Column("request", DIGEST, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("response", sa.Text, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "account", "key"),
    )
    op.create_table(
        "mute",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("room", NAME, nullable=False),
        sa.Column("muted_by", NAME, nullable=False),
        sa.Column("muted_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "room"),
    )


def _versions() -> None:
    op.create_table(
        "harness_version",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("parent", DIGEST, nullable=True),
        sa.Column("author", NAME, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.Column("manifest", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", "digest"),
        sa.UniqueConstraint("workspace", "name", "number", name="uq_harness_version_number"),
    )
    op.create_index("ix_harness_version_created", "harness_version", ["workspace", "created_at"], unique=False)
    op.create_index("ix_harness_version_digest", "harness_version", ["workspace", "digest"], unique=False)
    op.create_table(
        "pointer",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("pointer", NAME, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("urgent", sa.Boolean, nullable=False),
        sa.Column("moved_by", NAME, nullable=False),
        sa.Column("moved_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "kind", "name", "pointer"),
    )
    op.create_index("ix_pointer_digest", "pointer", ["workspace", "kind", "digest"], unique=False)
    op.create_table(
        "policy",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("pointer", NAME, nullable=False),
        sa.Column("approvals", sa.Integer, nullable=False),
        sa.Column("gates", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "kind", "pointer"),
    )


def _facts() -> None:
    op.create_table(
        "release",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("author", NAME, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "digest"),
    )
    op.create_index("ix_release_name", "release", ["workspace", "name", "created_at"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("subject", DIGEST, nullable=False),
        sa.Column("type", SHORT, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("author", NAME, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "digest"),
    )
    op.create_index("ix_evidence_subject", "evidence", ["workspace", "subject", "type"], unique=False)


def _proposals() -> None:
    op.create_table(
        "proposal",
        sa.Column("id", SHORT, nullable=False),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("pointer", NAME, nullable=False),
        sa.Column("from_digest", DIGEST, nullable=True),
        sa.Column("from_revision", sa.Integer, nullable=False),
        sa.Column("to_digest", DIGEST, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("urgent", sa.Boolean, nullable=False),
        sa.Column("author", NAME, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("created_at", SHORT, nullable=False),
        sa.Column("decided_at", SHORT, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_proposal_state", "proposal", ["workspace", "state"], unique=False)
    op.create_table(
        "gate_result",
        sa.Column("proposal", SHORT, nullable=False),
        sa.Column("gate", NAME, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("observed", sa.Text, nullable=False),
        sa.Column("threshold", sa.Text, nullable=False),
        sa.Column("outcome", WORD, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("at", SHORT, nullable=False),
        sa.ForeignKeyConstraint(
            ["proposal"],
            ["proposal.id"],
        ),
        sa.PrimaryKeyConstraint("proposal", "gate", "run"),
    )
    op.create_table(
        "approval",
        sa.Column("proposal", SHORT, nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("verdict", WORD, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("at", SHORT, nullable=False),
        sa.ForeignKeyConstraint(
            ["proposal"],
            ["proposal.id"],
        ),
        sa.PrimaryKeyConstraint("proposal", "account"),
    )


def _ledger() -> None:
    op.create_table(
        "ledger_head",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("hash", DIGEST, nullable=False),
        sa.PrimaryKeyConstraint("workspace"),
    )
    op.create_table(
        "ledger",
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("seq", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at", SHORT, nullable=False),
        sa.Column("actor", NAME, nullable=False),
        sa.Column("kind", SHORT, nullable=False),
        sa.Column("subject", LONG, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("hash", DIGEST, nullable=False),
        sa.PrimaryKeyConstraint("workspace", "seq"),
    )
    op.create_index("ix_ledger_at", "ledger", ["workspace", "at"], unique=False)
    op.create_index("ix_ledger_kind", "ledger", ["workspace", "kind", "seq"], unique=False)
    op.create_index("ix_ledger_subject", "ledger", ["workspace", "subject", "seq"], unique=False)
