"""Tables of orders and schedules, in the registry's database. They are made at the first use.

Not here: queries (store).
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, MetaData, String, Table, Text

VERSION = 1
metadata = MetaData()

schema = Table("run_schema", metadata, Column("version", Integer, primary_key=True))
order = Table(
    "run_order",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("number", Integer, nullable=False, unique=True),
    Column("run", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("target", String(16), nullable=False),
    Column("place", String(256), nullable=False, default=""),
    Column("body", Text, nullable=False),
    Column("schedule", String(64), nullable=False, default=""),
    Column("created_by", String(128), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("started_at", String(32), nullable=False, default=""),
    Column("ended_at", String(32), nullable=False, default=""),
    Column("fault", Text, nullable=False, default=""),
    Index("run_order_state", "state"),
    Index("run_order_run", "run", "number"),
)
schedule = Table(
    "run_schedule",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("cron", String(128), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_by", String(128), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("looked_at", String(32), nullable=False),
    Column("fired", Integer, nullable=False, default=0),
    Column("skipped", Integer, nullable=False, default=0),
    Column("note", Text, nullable=False, default=""),
)
