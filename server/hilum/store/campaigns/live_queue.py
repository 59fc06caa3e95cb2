"""How long live images wait: a campaign asks for nothing while they do."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from hilum.domain import Priority, ReadingState
from hilum.store.database.engines import open_reader
from hilum.store.schema.tables import reading

# One query for each priority goes along the index of due readings.
_OLDEST = select(func.min(reading.c.due_at)).where(
    reading.c.state == ReadingState.DUE, reading.c.priority == bindparam("wanted")
)


class LiveQueue:
    """The due readings of live images in the ledger at an SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._reader.dispose()

    def waited_seconds(self, now: float) -> float:
        """Return how long the oldest live image has waited for the analyser; 0: none waits."""
        with self._reader.connect() as connection:
            found = [
                connection.execute(_OLDEST, {"wanted": priority}).scalar()
                for priority in (Priority.URGENT, Priority.LIVE)
            ]
        return max((now - due_at for due_at in found if due_at is not None), default=0.0)
