"""Alembic environment: runs on the connection that `Database.migrate` hands over; there is no alembic.ini."""

from __future__ import annotations

from alembic import context

from hat_registry.store import access_tables, label_tables
from hat_registry.store.tables import metadata

assert {access_tables.webhook.metadata, label_tables.item.metadata} == {metadata}
connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
with context.begin_transaction():
    context.run_migrations()
