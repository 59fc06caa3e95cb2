"""The database below a ledger: rows and changes that no verb of the ledger shows or makes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Executable, Row, Table, event, select, text


class Store(Protocol):
    """Whatever works on the ledger's database: Ledger, LedgerViews, Rollouts, Retention."""

    _engine: Engine


def engine_of(store: Store) -> Engine:
    """The engine of one store alone, to hear its statements and its commits."""
    return store._engine


@contextmanager
def transaction(store: Store) -> Iterator[Connection]:
    """One transaction of the test's own."""
    with store._engine.begin() as connection:
        yield connection


def rows(store: Store, query: Table | Executable | str) -> list[Row[Any]]:
    """Rows of a query. A table stands for all of its rows in the order of their ids."""
    if isinstance(query, Table):
        query = select(query).order_by(query.c.id)
    with transaction(store) as connection:
        return list(connection.execute(text(query) if isinstance(query, str) else query).all())


def change(store: Store, *statements: Executable | str) -> None:
    """Execute the statements in one transaction."""
    with transaction(store) as connection:
        for statement in statements:
            connection.execute(text(statement) if isinstance(statement, str) else statement)


def rows_of(state: Path, query: str, *values: object) -> list[dict[str, Any]]:
    """Rows of the SQLite ledger in a state folder, in which another process may be at work."""
    with closing(sqlite3.connect(state / "ledger.sqlite")) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute(query, values)]
        connection.commit()
    return found


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """The statements inside the block, without the beginnings of transactions."""
    asked: list[str] = []

    def hear(*call: Any) -> None:
        if not call[2].startswith("BEGIN"):
            asked.append(call[2])

    event.listen(store._engine, "before_cursor_execute", hear)
    try:
        yield asked
    finally:
        event.remove(store._engine, "before_cursor_execute", hear)
