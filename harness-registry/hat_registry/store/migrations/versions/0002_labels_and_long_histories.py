"""Labels come under the migrations; indexes for long histories.

Expand only: code of the revision before runs on this schema. Label tables that such code made by itself are taken over
as they are, and its `label_schema` stays until nothing reads it. Not here: any change of what a row means.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
NAME, ITEM, TIME = sa.String(128), sa.String(256), sa.String(32)
LABEL_TABLES = ("label_decision", "label_rater", "label_rating", "label_item", "label_project")
INDEXES = {
    "ix_ledger_actor": ("ledger", ["workspace", "actor", "seq"]),
    "ix_proposal_created": ("proposal", ["workspace", "created_at", "id"]),
    "ix_proposal_state_created": ("proposal", ["workspace", "state", "created_at", "id"]),
    "ix_release_created": ("release", ["workspace", "created_at", "digest"]),
}


def upgrade() -> None:
    """Make the label tables where they are missing, and the indexes."""
    present = set(sa.inspect(op.get_bind()).get_table_names())
    if "label_project" not in present:
        _projects()
        _ratings()
    for name, (table, columns) in INDEXES.items():
        op.create_index(name, table, columns)


def downgrade() -> None:
    """Drop them again; only for tests, since it loses the labels."""
    for name, (table, _) in INDEXES.items():
        op.drop_index(name, table)
    for name in LABEL_TABLES:
        op.drop_table(name)


def _projects() -> None:
    op.create_table(
        "label_project",
        sa.Column("workspace", NAME, primary_key=True),
        sa.Column("name", NAME, primary_key=True),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_by", NAME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "label_item",
        sa.Column("workspace", NAME, primary_key=True),
        sa.Column("project", NAME, primary_key=True),
        sa.Column("id", ITEM, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("ix_label_item_position", "label_item", ["workspace", "project", "position"])
    op.create_table(
        "label_rater",
        sa.Column("workspace", NAME, primary_key=True),
        sa.Column("project", NAME, primary_key=True),
        sa.Column("account", NAME, primary_key=True),
        sa.Column("pseudonym", NAME, nullable=False),
    )


def _ratings() -> None:
    key = ("workspace", "project")
    op.create_table(
        "label_rating",
        *(sa.Column(name, NAME, primary_key=True) for name in key),
        sa.Column("item", ITEM, primary_key=True),
        sa.Column("account", NAME, primary_key=True),
        sa.Column("criterion", NAME, primary_key=True),
        sa.Column("label", NAME, nullable=False),
        sa.Column("cause", NAME, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("at", TIME, nullable=False),
    )
    op.create_table(
        "label_decision",
        *(sa.Column(name, NAME, primary_key=True) for name in key),
        sa.Column("item", ITEM, primary_key=True),
        sa.Column("criterion", NAME, primary_key=True),
        sa.Column("label", NAME, nullable=False),
        sa.Column("cause", NAME, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("decided_by", NAME, nullable=False),
        sa.Column("at", TIME, nullable=False),
    )
