"""Alembic migrations; expand first, contract one version later, so that two versions may run side by side."""
