"""Bytes of the ledger's tables on disk."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Engine, text

_QUERY: Final = text(
    "SELECT relname AS name, pg_table_size(oid) AS rows_bytes, pg_indexes_size(oid) AS index_bytes,"
    " CAST(reltuples AS bigint) AS items FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = 'public'::regnamespace AND reltuples > 0"
    " ORDER BY pg_total_relation_size(oid) DESC"
)


def of_tables(engine: Engine) -> dict[str, dict[str, Any]]:
    """Bytes of rows and of indexes of each table that has rows, and their number."""
    with engine.connect() as connection:
        return {
            row.name: {
                "rows": row.items,
                "rows_bytes": row.rows_bytes,
                "index_bytes": row.index_bytes,
            }
            for row in connection.execute(_QUERY)
        }
