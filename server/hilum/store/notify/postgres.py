"""The notifier of a ledger in PostgreSQL: LISTEN / NOTIFY.

A pooler in transaction mode gives a session to another client after each transaction. A LISTEN
through it hears nothing, and would stay behind on a session of others. So a subscription needs a
connection without a pooler; behind one its stage polls.
"""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, text

from hilum.store.database.engines import is_pooled
from hilum.store.database.prepared import PreparedStatement
from hilum.store.notify.notifier import Subscription

# The second one is a standby's answer to LISTEN before it is promoted.
_AWAY: Final = (psycopg.OperationalError, psycopg.InternalError)
POOLED_ADVICE: Final = (
    "a pooler stands before PostgreSQL, so stages look for work every pipeline.poll_seconds: set"
    " ledger.direct_url to PostgreSQL itself"
)
_NOTIFY: Final = PreparedStatement(text("SELECT pg_notify(:channel, '')"))


class _Pooled(psycopg.OperationalError):
    """A pooler stands between us and PostgreSQL."""


class PostgresNotifier:
    """See `hilum.store.notify.notifier.Notifier`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """`arguments`: libpq's, of the connections that listen."""
        self._arguments = arguments
        self._said_pooled = False

    def notify_in(self, connection: Connection, stages: Iterable[str]) -> None:
        """NOTIFY inside the transaction: PostgreSQL delivers it at the commit, and only then."""
        for stage in sorted(set(stages)):
            _NOTIFY.write(connection, {"channel": f"hilum_{stage}"})

    def notify(self, stages: Iterable[str]) -> None:
        """Nothing: the commit has notified already."""

    def listen(self, stage: str) -> Subscription:
        """A subscription with a connection of its own."""
        return _NotifyBell(self._arguments, stage, self._say_pooled)

    def close(self) -> None:
        """Nothing: the ledger's connections did it."""

    def _say_pooled(self) -> None:
        """Log once that stages poll."""
        from hilum.observability import telemetry  # noqa: PLC0415 - brings the metrics

        if not self._said_pooled:
            self._said_pooled = True
            telemetry.logger("store").warning("notifications_unavailable", advice=POOLED_ADVICE)


class _NotifyBell:
    def __init__(
        self, arguments: Mapping[str, Any], stage: str, say_pooled: Callable[[], None]
    ) -> None:
        self._arguments = arguments
        self._say_pooled = say_pooled
        self._is_pooled = False
        self._channel = f"hilum_{stage}"
        self._connection: psycopg.Connection | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        # Not in `close`: another thread may wait for it.
        weakref.finalize(self, os.close, self._wake).atexit = False
        with contextlib.suppress(*_AWAY):
            self._connect()

    @property
    def descriptor(self) -> int | None:
        return None  # it changes when the server has restarted

    def _connect(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            connection = psycopg.connect(**self._arguments, autocommit=True)
            try:
                self._require_direct(connection)
                connection.execute(f'LISTEN "{self._channel}"')
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _require_direct(self, connection: psycopg.Connection) -> None:
        """Raise _Pooled behind a pooler."""
        self._is_pooled = is_pooled(connection)
        if self._is_pooled:
            self._say_pooled()
            raise _Pooled

    def wait(self, seconds: float) -> bool:
        if self._is_pooled:
            select.select([self._wake], [], [], seconds)
            return False
        try:
            connection = self._connect()
            readable, _, _ = select.select([connection.fileno(), self._wake], [], [], seconds)
            return bool(readable) and any(True for _ in connection.notifies(timeout=0)) | (
                self._wake in readable
            )
        except _AWAY:
            # the server restarted, or is a standby; the next poll finds the work, the next wait
            # listens again
            self._connection = None
            select.select([self._wake], [], [], seconds)
            return False

    def close(self) -> None:
        os.eventfd_write(self._wake, 1)
        if self._connection is not None:
            self._connection.close()
