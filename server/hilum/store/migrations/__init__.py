"""Alembic revisions of the ledger."""
