"""The notifier of a ledger in PostgreSQL: LISTEN / NOTIFY."""

from __future__ import annotations

import contextlib
import os
import select
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, text

from hilum.store.database.prepared import PreparedStatement
from hilum.store.notify.notifier import Subscription

# The second one is a standby's answer to LISTEN before it is promoted.
_AWAY: Final = (psycopg.OperationalError, psycopg.InternalError)
_NOTIFY: Final = PreparedStatement(text("SELECT pg_notify(:channel, '')"))


class PostgresNotifier:
    """See `hilum.store.notify.notifier.Notifier`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """`arguments`: libpq's."""
        self._arguments = arguments

    def notify_in(self, connection: Connection, stages: Iterable[str]) -> None:
        """NOTIFY inside the transaction: PostgreSQL delivers it at the commit, and only then."""
        for stage in sorted(set(stages)):
            _NOTIFY.write(connection, {"channel": f"hilum_{stage}"})

    def notify(self, stages: Iterable[str]) -> None:
        """Nothing: the commit has notified already."""

    def listen(self, stage: str) -> Subscription:
        """A subscription with a connection of its own."""
        return _NotifyBell(self._arguments, stage)

    def close(self) -> None:
        """Nothing: the ledger's connections did it."""


class _NotifyBell:
    def __init__(self, arguments: Mapping[str, Any], stage: str) -> None:
        self._arguments = arguments
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
                connection.execute(f'LISTEN "{self._channel}"')
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def wait(self, seconds: float) -> bool:
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
