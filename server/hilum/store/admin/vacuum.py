"""Rewriting the database, which keeps bytes of changed and deleted rows.

The bytes stay in free space of its pages, and in its log, until then.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import OperationalError

from hilum.store.database.engines import open_engine

_TABLES = (
    "instance",
    "reading",
    "result",
    "document",
    "delivery",
    "study",
    "rejection",
    "conflict",
    "assignment",
    "comparison",
    "commitment",
    "former_header",
)
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_IS_LOCKED = "55P03"  # SQLSTATE lock_not_available, of the notice of a table that was skipped


def rewrite(url: str) -> bool:
    """Rewrite the ledger from its rows alone.

    SQLite: VACUUM, then a checkpoint that empties the write-ahead log. PostgreSQL: VACUUM FULL of
    the tables with patient data; its own write-ahead log and the backups are the administrator's.

    False: the ledger was in use all the time, or the disk has too little room for a second copy.
    """
    return (
        _rewrite_sqlite(url)
        if make_url(url).get_backend_name() == "sqlite"
        else _rewrite_postgresql(url)
    )


def _rewrite_sqlite(url: str) -> bool:
    engine = open_engine(url)
    connection = engine.raw_connection()  # VACUUM must not run inside a transaction
    try:
        connection.cursor().execute("VACUUM")
        return _empty_log(connection.cursor())
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
        engine.dispose()


def _empty_log(cursor: DBAPICursor) -> bool:
    """Empty the write-ahead log. Readers of an older state keep it from being emptied."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy, *_ = cursor.fetchone() or (1,)
        if not busy:
            return True
        time.sleep(0.1)
    return False


def _rewrite_postgresql(url: str) -> bool:
    engine = open_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            return all(_rewrite_table(connection, name) for name in _TABLES)
    except OperationalError:  # no room, or it does not answer
        return False
    finally:
        engine.dispose()


def _rewrite_table(connection: Connection, name: str) -> bool:
    """Rewrite one table. False: another connection held it all the time.

    There is no `SET lock_timeout`: behind a pooler it would hold for other clients, too.
    """
    driver: Any = connection.connection.driver_connection
    skipped: list[str | None] = []

    def hear(notice: Any) -> None:  # noqa: ANN401 - psycopg's, which a server with SQLite does not load
        skipped.append(notice.sqlstate)

    driver.add_notice_handler(hear)
    try:
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up:
            skipped.clear()
            connection.execute(text(f"VACUUM (FULL, SKIP_LOCKED) {name}"))
            if _IS_LOCKED not in skipped:
                return True
            time.sleep(_LOOK_SECONDS)
    finally:
        driver.remove_notice_handler(hear)
    return False
