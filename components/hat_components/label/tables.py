"""The label store's tables, for SQLAlchemy Core. Each row carries a workspace; times are UTC ISO 8601 text.

Always holds: they have a metadata of their own, so the registry's migrations and theirs never meet; `label_schema`
says by which version they were made. Not here: queries (store).
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text

VERSION = 1
metadata = MetaData()
NAME = String(128)
ITEM = String(256)
TIME = String(32)

schema = Table("label_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False))

project = Table(
    "label_project",
    metadata,
    Column("workspace", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("content", Text, nullable=False),
    Column("created_by", NAME, nullable=False),
    Column("created_at", TIME, nullable=False),
)
"""`content` is the JSON of `store.Project`."""

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
"""`content` is the JSON of `store.Task`."""

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
