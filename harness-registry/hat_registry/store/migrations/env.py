"""Alembic environment: runs on the connection that `Database.migrate` hands over; there is no alembic.ini."""

from __future__ import annotations

from alembic import context

from hat_registry.store import access_tables, label_tables

metadata = label_tables.metadata
assert metadata is access_tables.metadata
connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
with context.begin_transaction():
    context.run_migrations()
