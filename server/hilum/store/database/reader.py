"""Reading the ledger: one snapshot at a time, and its troubles in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from hilum.errors import Retry
from hilum.store.database.engines import DAMAGED, open_reader

# PostgreSQL's SQLSTATE: there is a database, but no ledger in it yet.
_UNDEFINED_TABLE: Final = "42P01"


class LedgerReader:
    """The ledger at an SQLAlchemy URL, read-only, for queries of people and monitors.

    Thread-safe. Every method raises Retry while the ledger does not answer.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._file = _file_of(url)
        self._engine = open_reader(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        """One consistent state of the ledger."""
        if self._file is not None and not self._file.exists():  # SQLite would create an empty one
            raise Retry("the ledger does not exist yet", after_seconds=5, is_outage=True)
        try:
            # Begun here: a prepared statement begins none.
            with self._engine.begin() as connection:
                yield connection
        except PoolTimeoutError as error:
            raise Retry("the ledger is busy", after_seconds=5, is_outage=True) from error
        except DBAPIError as error:
            if (trouble := _trouble(error)) is None:
                raise  # a bug of ours
            raise Retry(trouble, after_seconds=5, is_outage=True) from error


def _trouble(error: DBAPIError) -> str | None:
    """The problem of the ledger, without the database's words.

    None: the query itself is wrong.
    """
    if getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE or "no such table" in str(
        error.orig
    ):
        return "the ledger has no tables yet"
    if isinstance(error, OperationalError | InterfaceError):
        return "the ledger does not answer"
    return DAMAGED if type(error) is DatabaseError else None  # SQLite: not a database, or malformed


def _file_of(url: str) -> Path | None:
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (
        None,
        "",
        ":memory:",
    )
    return Path(str(parsed.database)) if is_file else None
