"""First schema: versions, pointers, proposals, evidence, releases, ledger, accounts."""

from __future__ import annotations

from alembic import op

from hat_registry.store.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables of version 1."""
    metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop them again; only for tests, since it loses the ledger."""
    metadata.drop_all(op.get_bind())
