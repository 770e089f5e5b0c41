"""Invitations and webhooks. Expand only: code of the revision before runs on this schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
ID, NAME, TIME = sa.String(32), sa.String(128), sa.String(32)


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "invitation",
        sa.Column("id", ID, primary_key=True),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_by", NAME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=True),
    )
    op.create_table(
        "webhook",
        sa.Column("id", ID, primary_key=True),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("kinds", sa.Text, nullable=False),
        sa.Column("secret", sa.String(128), nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("cursor", sa.Integer, nullable=False),
        sa.Column("created_by", NAME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_index("ix_webhook_workspace", "webhook", ["workspace", "created_at"])
    op.create_table(
        "webhook_delivery",
        sa.Column("id", ID, primary_key=True),
        sa.Column("webhook", ID, nullable=False),
        sa.Column("workspace", NAME, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", TIME, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("error", sa.String(256), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["webhook"], ["webhook.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("webhook", "seq", name="uq_webhook_delivery_seq"),
    )
    op.create_index("ix_webhook_delivery_due", "webhook_delivery", ["state", "next_at"])


def downgrade() -> None:
    """Drop them again; only for tests."""
    for name in ("webhook_delivery", "webhook", "invitation"):
        op.drop_table(name)
