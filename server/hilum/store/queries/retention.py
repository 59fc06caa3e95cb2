"""The state of deletion: the moment of age, the deletions of this hour, promised images."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from hilum.store.installation import known_time
from hilum.store.installation.known_time import Believed
from hilum.store.retention import rate
from hilum.store.retention.rate import Hour
from hilum.store.schema.tables import instance


@dataclass(frozen=True, slots=True)
class Promised:
    """Images that storage commitment promised to keep, and those that may leave all the same."""

    images: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RetentionState:
    """The state that the housekeeper has left. `believed` None: it never ran."""

    believed: Believed | None
    hour: Hour
    moment: float
    """The known time, or the clock's where it is believed."""

    @property
    def held(self) -> dict[str, bool]:
        """Reasons for which less is deleted than the settings say, each with whether it holds."""
        is_ahead = self.believed is not None and self.believed.is_ahead
        return {"clock": is_ahead, "hour": self.hour.is_spent}


def state(connection: Connection, now: float) -> RetentionState:
    """Read the state: two rows."""
    believed = known_time.read(connection)
    moment = believed.moment if believed is not None and believed.is_ahead else now
    return RetentionState(believed, rate.read(connection, moment), moment)


def promised(connection: Connection) -> Promised:
    """Count the images that storage commitment has ever promised and that are there."""
    is_there = (instance.c.committed_at.is_not(None), instance.c.pixels_removed_at.is_(None))
    images, size_bytes = connection.execute(
        select(func.count(), func.sum(instance.c.size_bytes)).where(*is_there)
    ).one()
    return Promised(images, size_bytes or 0)
