"""Connections to SQLite and PostgreSQL, prepared statements and JSON columns."""
