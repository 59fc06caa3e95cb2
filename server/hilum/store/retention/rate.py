"""The rate of deletion: the most that may leave the archive within an hour.

A bound for settings, clocks and bugs that are wrong. By age: a share of the images that are there.
Under pressure: as many bytes as were missing when the hour began, and as have come since. More
would mean that deleting frees no space, as where snapshots or hard links of a backup hold it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final

from sqlalchemy import Connection, func, select

from hilum.store.installation import values
from hilum.store.schema.tables import instance

HOUR_SECONDS: Final = 3600.0
_KEY: Final = "retention_hour"
_SLACK_BYTES: Final = 1 << 30  # under pressure: the ledger and documents need room, too


@dataclass(frozen=True, slots=True)
class Hour:
    """The deletions of an hour, by age and under pressure (`pressed_bytes`), and their bounds.

    None: not looked at yet.
    """

    began: float
    images: int = 0
    may_leave: int | None = None
    pressed_bytes: int = 0
    missing_bytes: int | None = None

    @property
    def images_left(self) -> int:
        """The number of images that may still leave by age."""
        return 0 if self.may_leave is None else max(0, self.may_leave - self.images)

    @property
    def is_spent(self) -> bool:
        """Whether deletion by age waits for the next hour."""
        return self.may_leave is not None and not self.images_left

    def with_left(self, cause: str, images: int, size_bytes: int) -> Hour:
        """The hour after these deletions."""
        if cause == "pressure":
            return replace(self, pressed_bytes=self.pressed_bytes + size_bytes)
        return replace(self, images=self.images + images)


def read(connection: Connection, now: float) -> Hour:
    """The hour in progress: the last one, or one that begins now."""
    found = values.read(connection, _KEY)
    hour = Hour(now) if found is None else Hour(**found)
    return hour if hour.began <= now < hour.began + HOUR_SECONDS else Hour(now)


def write(connection: Connection, hour: Hour) -> None:
    """Write the hour in the transaction of its deletions."""
    values.write(connection, _KEY, asdict(hour))


def with_share(connection: Connection, hour: Hour, share: float, at_least: int) -> Hour:
    """The hour with its bound on images, which is set once."""
    if hour.may_leave is not None:
        return hour
    count = connection.execute(
        select(func.count()).select_from(instance).where(instance.c.pixels_removed_at.is_(None))
    ).scalar_one()
    return replace(hour, may_leave=max(at_least, int(share * (count + hour.images))))


def with_missing(hour: Hour, missing_bytes: int) -> Hour:
    """The hour with the number of bytes that were missing at its first look."""
    return hour if hour.missing_bytes is not None else replace(hour, missing_bytes=missing_bytes)


def pressure_left(connection: Connection, hour: Hour) -> int:
    """The number of bytes that may still leave under pressure."""
    came = select(func.sum(instance.c.size_bytes)).where(
        instance.c.pixels_removed_at.is_(None), instance.c.received_at >= hour.began
    )
    received = connection.execute(came).scalar() or 0
    return (hour.missing_bytes or 0) + received + _SLACK_BYTES - hour.pressed_bytes
