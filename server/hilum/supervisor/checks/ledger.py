"""Whether SQLite can read the ledger's file; how PostgreSQL is reached, and whether it writes.

A damaged page is otherwise noticed only when something reads it, perhaps weeks later.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, inspect
from sqlalchemy.engine import make_url

from hilum.settings import LOOPBACK, Settings
from hilum.store.database.engines import (
    DAMAGED,
    READ_ONLY,
    RESTORE,
    is_pooled,
    libpq_arguments,
    open_engine,
    open_reader,
    read_only,
)
from hilum.store.notify.notifier import notifier_for
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.peers import authority, certificate

# Each GB is read from the disk and takes about a second of CPU.
_WHOLE_BYTES: Final = 2 << 30
_CHANNEL: Final = "check"
_NOTIFIED_SECONDS: Final = 5.0
_POOLED: Final = (
    "Set ledger.direct_url to PostgreSQL itself, so that stages are notified"
    " (docs/operate/postgresql.md)."
)
_NOT_NOTIFIED: Final = (
    "ledger.direct_url does not answer, is a pooler, too, or names another database: correct it."
)


def ledger_file(settings: Settings) -> Iterator[Check]:
    """Check all pages of a ledger up to `_WHOLE_BYTES`, else the first row of each table.

    Raises DatabaseError, see `is_damaged`, and OSError.
    """
    parsed = make_url(settings.ledger_url)
    if parsed.get_backend_name() != "sqlite":
        return
    size_bytes = Path(parsed.database or "").stat().st_size
    is_whole = size_bytes <= _WHOLE_BYTES
    reader = open_reader(settings.ledger_url)
    try:
        with reader.connect() as connection:
            found = _read(connection, is_whole=is_whole)
    finally:
        reader.dispose()
    said = (
        "every page can be read"
        if is_whole
        else "too large to read all of it here: `PRAGMA quick_check` of sqlite3 does"
    )
    detail = f"{size_bytes / 1e9:.1f} GB, {said}" if found == "ok" else DAMAGED
    yield Check("ledger file", ok=found == "ok", detail=detail, advice=RESTORE)


def ledger_server(settings: Settings) -> Iterator[Check]:
    """Check that PostgreSQL takes writes."""
    if make_url(settings.ledger_url).get_backend_name() == "sqlite":
        return
    reader = open_reader(settings.ledger_url)
    try:
        with reader.connect() as connection:
            is_read_only = read_only(connection)
    finally:
        reader.dispose()
    advice = (
        "Name the primary in ledger.url; or name all servers, with"
        " target_session_attrs=read-write (docs/operate/operations.md)."
    )
    detail = READ_ONLY if is_read_only else "its server takes writes"
    yield Check("ledger server", not is_read_only, detail, advice)


def ledger_tls(settings: Settings) -> Iterator[Check]:
    """Check the files of TLS; and say where the server's certificate is not verified."""
    if make_url(settings.ledger_url).get_backend_name() == "sqlite":
        return
    files = settings.ledger.tls_files
    if "sslcert" in files:
        yield certificate("ledger TLS", files["sslcert"], "sslcert", files.get("sslkey"))
    if "sslrootcert" in files:
        yield authority("ledger CA", files["sslrootcert"], "sslrootcert")
    mode = settings.ledger.words.get("sslmode", "prefer")
    host = str(libpq_arguments(settings.ledger_url).get("host") or "")
    if mode != "verify-full" and not (host.startswith("/") or host in {"", *LOOPBACK}):
        detail = f"sslmode={mode} does not verify the server: verify-full with sslrootcert does"
        yield Check("ledger TLS", ok=True, detail=detail)


def ledger_connections(settings: Settings) -> Iterator[Check]:
    """Check the way to PostgreSQL: whether a pooler is on it, and whether stages are notified."""
    if make_url(settings.ledger_url).get_backend_name() == "sqlite":
        return
    version, has_pooler = _server(settings.ledger_url)
    place = f"PostgreSQL {version}{' behind a pooler' if has_pooler else ''}"
    if has_pooler and not settings.ledger.direct_url:
        detail = f"{place}; stages look for work every {settings.pipeline.poll_seconds:g} s"
        yield Check("ledger connections", ok=False, detail=detail, advice=_POOLED)
        return
    is_notified = _is_notified(settings)
    detail = f"{place}; stages are {'' if is_notified else 'not '}notified of work"
    yield Check("ledger connections", ok=is_notified, detail=detail, advice=_NOT_NOTIFIED)


def _server(url: str) -> tuple[str, bool]:
    """Return the server's version, and whether a pooler stands before it."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
            connection.rollback()
            return str(version), is_pooled(connection.connection.driver_connection)
    finally:
        engine.dispose()


def _is_notified(settings: Settings) -> bool:
    """Return whether a notification of a commit arrives where stages listen."""
    notifier = notifier_for(settings.ledger_url, settings.ledger.direct_url)
    engine = open_engine(settings.ledger_url)
    subscription = notifier.listen(_CHANNEL)
    try:
        with engine.begin() as connection:
            notifier.notify_in(connection, (_CHANNEL,))
        return subscription.wait(_NOTIFIED_SECONDS)
    finally:
        subscription.close()
        engine.dispose()


def _read(connection: Connection, *, is_whole: bool) -> str:
    """Read all pages or the first row of each table, and return "ok" or the first problem."""
    for table in inspect(connection).get_table_names():
        connection.exec_driver_sql(f'SELECT * FROM "{table}" LIMIT 1').first()  # noqa: S608 - a name of our own schema
    if not is_whole:
        return "ok"
    return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
