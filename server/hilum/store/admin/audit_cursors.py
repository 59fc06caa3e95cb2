"""Cursors of the programs that read the audit row by row: the log and the syslog collector.

Each cursor has a lease, so one process of all hosts reads for it. The process moves the cursor
after its rows have reached their target. After a crash a row may come twice, and no row is left
out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from hilum.store.audit.log import audit_rows
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.queue.clock_recovery import SKEW_SECONDS
from hilum.store.schema.tables import audit, audit_cursor

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditBacklog:
    """Rows behind a cursor: their number, and the moment of the oldest (0: there is none)."""

    count: int
    oldest_at: float


class AuditCursors:
    """The audit cursors of the ledger at an SQLAlchemy URL."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        # Not synced: after a power cut a row may come twice.
        self._engine = open_engine(url, is_synced=False)
        self._reader = open_reader(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def set_up(self, names: Collection[str]) -> None:
        """Make these the only cursors. A new cursor begins at the end of the audit."""
        with self._engine.begin() as connection:
            connection.execute(delete(audit_cursor).where(audit_cursor.c.name.not_in(names)))
        for name in sorted(names):
            try:
                with self._engine.begin() as connection:
                    _add(connection, name)
            except IntegrityError:  # another host starts at the same moment
                continue

    def take(self, name: str, owner: str, seconds: float) -> int | None:
        """Lease a cursor and return the row id behind which it stands.

        None: another process holds it, or `set_up` has not made it.
        """
        now = self._clock()
        cursor = audit_cursor.c
        is_free = or_(
            cursor.owner.is_(None),
            cursor.owner == owner,
            ~cursor.owned_until.between(now, now + seconds + SKEW_SECONDS),
        )
        ours = (
            update(audit_cursor)
            .where(cursor.name == name, is_free)
            .values(owner=owner, owned_until=now + seconds)
        )
        with self._engine.begin() as connection:
            return connection.execute(ours.returning(cursor.last_id)).scalar_one_or_none()

    def has_news(self, name: str) -> bool:
        """Whether there are rows behind this cursor. Takes no write lock."""
        last = select(audit_cursor.c.last_id).where(audit_cursor.c.name == name).scalar_subquery()
        with self._reader.connect() as connection:
            return (
                connection.execute(select(audit.c.id).where(audit.c.id > last).limit(1)).first()
                is not None
            )

    def after(self, last_id: int, limit: int = 200) -> list[Item]:
        """Return the next rows, oldest first."""
        with self._reader.connect() as connection:
            rows = connection.execute(
                audit_rows().where(audit.c.id > last_id).order_by(audit.c.id).limit(limit)
            )
            return [row._asdict() for row in rows]

    def move(self, name: str, owner: str, last_id: int) -> bool:
        """Move the cursor to this row, once all rows up to it have reached their target.

        False: another process holds the cursor by now.
        """
        ours = and_(audit_cursor.c.name == name, audit_cursor.c.owner == owner)
        with self._engine.begin() as connection:
            return (
                connection.execute(
                    update(audit_cursor).where(ours).values(last_id=last_id)
                ).rowcount
                == 1
            )

    def waiting(self, name: str) -> AuditBacklog | None:
        """Return the rows behind a cursor; None: `set_up` has not made it."""
        last = select(audit_cursor.c.last_id).where(audit_cursor.c.name == name)
        with self._reader.connect() as connection:
            if (last_id := connection.execute(last).scalar_one_or_none()) is None:
                return None
            counted = select(func.count(), func.coalesce(func.min(audit.c.at), 0.0)).where(
                audit.c.id > last_id
            )
            return AuditBacklog(*connection.execute(counted).one())

    def give_back(self, name: str, owner: str) -> None:
        """End the lease, so that another process may take the cursor at once."""
        ours = and_(audit_cursor.c.name == name, audit_cursor.c.owner == owner)
        with self._engine.begin() as connection:
            connection.execute(
                update(audit_cursor).where(ours).values(owner=None, owned_until=None)
            )


def _add(connection: Connection, name: str) -> None:
    if (
        connection.execute(select(audit_cursor.c.name).where(audit_cursor.c.name == name)).first()
        is None
    ):
        end = connection.execute(select(func.coalesce(func.max(audit.c.id), 0))).scalar_one()
        connection.execute(insert(audit_cursor).values(name=name, last_id=end))
