"""Engines: one schema on SQLite (one machine) and on PostgreSQL (many hosts)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from hilum.store.database import json_columns

AWAY: Final = (OperationalError, InterfaceError, PoolTimeoutError)
"""Errors of a database that does not answer for now.

Other errors are faults of our statements. SQLite reports some of those as OperationalError, too.
"""

DAMAGED: Final = "the ledger is damaged"
RESTORE: Final = (
    "Stop `hilum serve`, and restore the last backup into a new folder"
    " (docs/operate/operations.md)."
)
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# SQLSTATEs that psycopg files under its InternalError, together with those of bugs. The first one:
# a standby that is not promoted yet, or a server with a full disk. The others: a session that the
# server ended because it was idle in a transaction, or too long.
_IS_READ_ONLY = "25006"
READ_ONLY: Final = "its server takes no writes: it is a standby, or set to be read-only"
_TAKES_NO_WRITES: Final = text(
    "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
)
_AWAY_STATES: Final = frozenset({_IS_READ_ONLY, "25P03", "25P04"})
_BUSY_TIMEOUT_MS = 30_000
# A server that loses its power sends nothing. Without these settings a caller waits for an answer
# for a quarter of an hour, and a listener for two hours. The names are libpq's; a value in the URL
# comes first.
_CONNECT_TIMEOUTS: Final[Mapping[str, int]] = {
    "connect_timeout": 5,  # seconds
    "tcp_user_timeout": 10_000,  # ms until sent data is acknowledged
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_POOL_TIMEOUT_SECONDS = 10
_LONGEST_GAP_SECONDS = 0.05


class ImmediateSqlite(SQLiteDialect_pysqlite):
    """SQLite dialect: transactions begin with the write lock.

    A listener for `begin` costs more: events in each of them.
    """

    supports_statement_cache = True

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Begin with the write lock.

        Under a deferred one, a transaction that reads first and upgrades later can fail with
        SQLITE_BUSY at once, despite the timeout.
        """
        dbapi_connection.cursor().execute("BEGIN IMMEDIATE")


class DeferredSqlite(SQLiteDialect_pysqlite):
    """SQLite dialect: transactions take no lock that others wait for."""

    supports_statement_cache = True

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        """Begin a transaction that reads one state of the ledger throughout."""
        dbapi_connection.cursor().execute("BEGIN")


_WRITING = "sqlite+hilum_writing"
_READING = "sqlite+hilum_reading"
registry.register(_WRITING.replace("+", "."), __name__, "ImmediateSqlite")
registry.register(_READING.replace("+", "."), __name__, "DeferredSqlite")


def open_engine(url: str, *, read_only: bool = False, is_synced: bool = True) -> Engine:
    """Open an engine for the ledger at `url`; with `read_only` it takes no write lock.

    SQLite: write-ahead log with a full sync at each commit, because an acknowledged row must
    survive a power cut. Without `is_synced` commits survive any crash of a process, and a power cut
    only after `sync_of`.
    """
    # Parameters hold whole headers, thus patient data: an error's text must not repeat them.
    options: dict[str, Any] = {"hide_parameters": True, "pool_timeout": _POOL_TIMEOUT_SECONDS}
    options |= {"json_serializer": json_columns.encoded, "json_deserializer": json_columns.decoded}
    if make_url(url).get_backend_name() != "sqlite":
        engine = create_engine(
            url, pool_pre_ping=True, pool_size=4, connect_args=libpq_arguments(url), **options
        )
        event.listen(engine, "connect", _fit_to_pooler)
        # In a transaction that we have made read-only, such an answer to a write is a bug of ours.
        event.listen(
            engine,
            "handle_error",
            _call_away(_AWAY_STATES - {_IS_READ_ONLY} if read_only else _AWAY_STATES),
        )
        return engine
    ours = make_url(url).set(drivername=_READING if read_only else _WRITING)
    engine = create_engine(
        ours,
        connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000, "check_same_thread": False},
        **options,
    )
    event.listen(engine, "connect", _configure_sqlite("FULL" if is_synced else "NORMAL"))
    return engine


def libpq_arguments(url: str) -> dict[str, Any]:
    """Arguments with which psycopg connects to the PostgreSQL at `url`.

    It may name several servers (`?host=a:5432&host=b:5432`).
    """
    parsed = make_url(url)
    _, named = parsed.get_dialect()().create_connect_args(parsed)
    return {**_CONNECT_TIMEOUTS, **named}


def is_pooled(connection: Any) -> bool:  # noqa: ANN401 - psycopg's, which a server with SQLite does not load
    """Whether a pooler such as PgBouncer stands between us and PostgreSQL.

    A pooler answers the connection with a key of its own, PostgreSQL with its process id. Call it
    outside a transaction.
    """
    before = connection.autocommit
    connection.autocommit = True
    try:
        (process_id,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    finally:
        connection.autocommit = before
    return bool(process_id != connection.info.backend_pid)


def _fit_to_pooler(connection: Any, _record: object) -> None:  # noqa: ANN401 - psycopg's
    """Prepare no statements behind a pooler: the next transaction may be on another session."""
    if is_pooled(connection):
        connection.prepare_threshold = None


class Transactions:
    """Transactions of an engine. Thread-safe.

    SQLite's connections stay out of the pool between transactions, because the way there and back
    is most of a transaction. PostgreSQL's go back to the pool, which tests each before it gives it
    out.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        pool = engine.pool
        self._pool = (
            pool if engine.dialect.name == "sqlite" and isinstance(pool, QueuePool) else None
        )
        self._idle: list[Connection] = []

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """Begin a transaction, as the engine's own `begin`.

        A connection that met an error goes back to the pool, which tests it.
        """
        connection = self._taken()
        try:
            with connection.begin():
                yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_kept():
            self._idle.append(connection)
        else:
            connection.close()

    def _is_kept(self) -> bool:
        """Whether a connection may be kept: not while there are more than the pool keeps.

        A thread may wait at the pool for one, and would not look here.
        """
        return (pool := self._pool) is not None and pool.overflow() <= 0

    def _taken(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._engine.connect()

    def close(self) -> None:
        """Give the connections back to the pool; later ones go there, too."""
        self._pool = None
        while self._idle:
            self._idle.pop().close()


@contextlib.contextmanager
def begin_part(engine: Engine) -> Iterator[Connection]:
    """One of many transactions in sequence, followed by a pause.

    A waiter for SQLite's lock sleeps between two looks and must see a gap.
    """
    with engine.begin() as connection:
        began = time.monotonic()
        yield connection
    if engine.dialect.name == "sqlite":
        time.sleep(min(_LONGEST_GAP_SECONDS, time.monotonic() - began))


def place_of_ledger(url: str) -> str:
    """The ledger's place for people: its file, or database and host, without any secret."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return str(Path(parsed.database or "").resolve())
    named = libpq_arguments(url)  # several servers stand behind the question mark
    return f"PostgreSQL, {named.get('dbname')} on {named.get('host') or 'this host'}"


def error_text(error: SQLAlchemyError) -> str:
    """The database's error text, without our statement."""
    return str(getattr(error, "orig", None) or error)


def read_only(connection: Connection) -> bool:
    """Return whether the ledger's server takes no writes now, as a standby (PostgreSQL)."""
    return connection.dialect.name == "postgresql" and bool(
        connection.execute(_TAKES_NO_WRITES).scalar_one()
    )


def is_damaged(error: BaseException) -> bool:
    """Whether SQLite reports that the ledger's file is no database, or malformed.

    Its own words may repeat stored data.
    """
    found = getattr(error, "orig", None) or error
    return (
        isinstance(found, sqlite3.DatabaseError)
        and getattr(found, "sqlite_errorcode", 0) & 0xFF in _DAMAGE
    )


def run(
    connection: Connection,
    sql: str,
    parameters: Any,  # noqa: ANN401 - the driver's, of which each takes others
    *,
    is_many: bool = False,
    is_read: bool = False,
) -> tuple[DBAPICursor, Sequence[Any]]:
    """Execute with the driver's own cursor in the connection's transaction.

    Returns that cursor and, with `is_read`, all rows. Errors are SQLAlchemy's, and its pool learns
    of them. Listeners to the engine's statements hear this one.
    """
    cursor = connection.connection.cursor()
    for hear in connection.engine.dispatch.before_cursor_execute:
        hear(connection, cursor, sql, parameters, None, is_many)
    try:
        (cursor.executemany if is_many else cursor.execute)(sql, parameters)
        return cursor, cursor.fetchall() if is_read else ()
    except BaseException as error:  # noqa: BLE001 - it goes on as SQLAlchemy's error
        raise_as_sqlalchemy(connection, error, sql, cursor)


def raise_as_sqlalchemy(
    connection: Connection, error: BaseException, sql: str, cursor: DBAPICursor | None = None
) -> NoReturn:
    """Raise the error that SQLAlchemy raises where its own execution meets this one.

    Call it in the handling of the error.
    """
    # Private, and the only function that does all of it: AWAY, `_call_away`, and no connection to a
    # dead server stays in the pool.
    connection._handle_dbapi_exception(error, sql, None, cursor, None)  # noqa: SLF001


def sync_of(url: str) -> Callable[[], None]:
    """A function that makes every earlier commit of any process durable, without a write lock.

    SQLite's log is written in order, and a checkpoint syncs it before and the database after
    (synchronous = NORMAL). So a sync of the log file is all that is missing. PostgreSQL has synced
    when a commit returns. Raises OperationalError, as a commit that syncs would.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return lambda: None
    log = f"{parsed.database}-wal"

    def sync() -> None:
        try:
            _sync_file(log)
        except FileNotFoundError:
            return  # the last connection to close has written everything into the database
        except OSError as error:
            raise OperationalError("fdatasync of the log", None, error) from error

    return sync


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def open_reader(url: str) -> Engine:
    """Open an engine that cannot write, and whose transactions each see one state of the ledger."""
    engine = open_engine(url, read_only=True)
    if engine.dialect.name == "sqlite":
        event.listen(
            engine,
            "connect",
            lambda connection, _record: connection.execute("PRAGMA query_only = ON"),
        )
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _call_away(states: Collection[str]) -> Callable[[ExceptionContext], OperationalError | None]:
    """A listener that turns these SQLSTATEs into OperationalError and lets the pool reconnect.

    The new connection goes to the server that can write by then.
    """

    def call_away(context: ExceptionContext) -> OperationalError | None:
        error = context.original_exception
        if getattr(error, "sqlstate", None) not in states:
            return None
        context.is_disconnect = True
        return OperationalError(
            context.statement, None, error, hide_parameters=True, connection_invalidated=True
        )

    return call_away


def _configure_sqlite(synchronous: str) -> Callable[[sqlite3.Connection, object], None]:
    pragmas = (
        "journal_mode = WAL",
        f"synchronous = {synchronous}",
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
        "foreign_keys = ON",
    )

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        # The dialects begin transactions (`ImmediateSqlite`, `DeferredSqlite`), not the driver.
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    return configure
