"""Comments on proposals. Expand only: code of the revision before runs on this schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "proposal_comment",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("workspace", sa.String(128), nullable=False),
        sa.Column("proposal", sa.String(32), nullable=False),
        sa.Column("author", sa.String(128), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.ForeignKeyConstraint(["proposal"], ["proposal.id"]),
    )
    op.create_index("ix_proposal_comment", "proposal_comment", ["proposal", "at", "id"])


def downgrade() -> None:
    """Drop it again; only for tests."""
    op.drop_table("proposal_comment")
