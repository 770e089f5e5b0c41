"""The label store's tables, for SQLAlchemy Core. Each row carries a workspace; times are UTC ISO 8601 text.

Always holds: they share the registry's metadata and its migrations. They stand here and not beside their queries
(hat_components.label.store), since migrations import downwards only.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table, Text

from hat_registry.store.tables import NAME, TIME, metadata

ITEM = String(256)

project = Table(
    "label_project",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("content", Text, nullable=False),
    Column("created_by", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
)
"""`content` is the JSON of `hat_components.label.model.Project`."""

item = Table(
    "label_item",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("id", ITEM, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("content", Text, nullable=False),
    Index("ix_label_item_position", "workspace", "project", "position"),
)
"""`content` is the JSON of `hat_components.label.model.Task`."""

rating = Table(
    "label_rating",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("item", ITEM, primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("criterion", NAME, primary_key=True),
    Column("label", NAME, nullable=False),
    Column("cause", NAME, nullable=False),
    Column("comment", Text, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("at", TIME, nullable=False),
)
"""`changes` counts how often the rater came to another label."""

rater = Table(
    "label_rater",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("pseudonym", NAME, nullable=False),
)
"""Name under which an account's ratings leave the store."""

decision = Table(
    "label_decision",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("item", ITEM, primary_key=True),
    Column("criterion", NAME, primary_key=True),
    Column("label", NAME, nullable=False),
    Column("cause", NAME, nullable=False),
    Column("reason", Text, nullable=False),
    Column("decided_by", NAME, nullable=False),
    Column("at", TIME, nullable=False),
)
"""Adjudications: they stand above the raters' majority."""
