"""Rows (SQLAlchemy on SQLite or Postgres) and blobs (a folder or S3). Knows no rules of the domain."""
