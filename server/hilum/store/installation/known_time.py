"""The known time, by which rows and files grow old: one clock alone deletes nothing.

The ledger holds the latest moment that was believed. Within a process time goes on with the
machine's own counter, which cannot be set. A clock is believed that is ahead of that by a few hours
at most. A clock that is further ahead moves nothing: its firmware may have forgotten the date, or
the server was off for a week. Then the known time goes on from its last value, as fast as the
counter, until a person confirms the clock. A clock that is behind deletes later, which does no
harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Column, Connection, Engine, func, select

from hilum.store.database.clocks import moment_of
from hilum.store.database.engines import open_engine
from hilum.store.installation import values
from hilum.store.schema.tables import instance, process

PLAUSIBLE_SECONDS: Final = 6 * 3600.0
"""The most that a clock may be ahead: below any sensible retention, above an upgrade's time."""
# Between the newest row of an earlier version and this one's first start.
_UPGRADE_SECONDS: Final = 7 * 86400.0
_KEY: Final = "known_time"


@dataclass(frozen=True, slots=True)
class Believed:
    """The known time, and the clock's time at the last look."""

    moment: float
    clock: float

    @property
    def ahead_seconds(self) -> float:
        """Seconds by which the clock is ahead; negative: behind."""
        return self.clock - self.moment

    @property
    def is_ahead(self) -> bool:
        """Whether deletion by age waits until a person confirms or sets the clock."""
        return self.ahead_seconds > PLAUSIBLE_SECONDS

    @property
    def is_behind(self) -> bool:
        """Whether the clock was set back, or a wrong one was confirmed.

        Deletion is not guarded until the two meet.
        """
        return self.ahead_seconds < -PLAUSIBLE_SECONDS


def counter() -> float:
    """Seconds since the machine was started, sleep included. It cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def mint(connection: Connection, clock: float) -> None:
    """Begin with the clock.

    Where the newest row of an earlier version is far behind the clock, begin with that row.
    """
    if values.read(connection, _KEY) is None:
        newest = max(
            (_newest(connection, column) for column in (instance.c.received_at, process.c.beat_at)),
            default=0.0,
        )
        is_plausible = not newest or clock <= newest + _UPGRADE_SECONDS
        _write(connection, Believed(max(clock, newest) if is_plausible else newest, clock))


def _newest(connection: Connection, column: Column[float]) -> float:
    return float(connection.execute(select(func.max(column))).scalar() or 0.0)


def read(connection: Connection) -> Believed | None:
    """The result of the last look; None in a ledger from before it."""
    found = values.read(connection, _KEY)
    return None if found is None else Believed(found["moment"], found["clock"])


class WrongDay(Exception):
    """The clock shows another day than the person entered."""

    def __init__(self, clock: float) -> None:
        super().__init__(clock)
        self.clock = clock


def confirm(url: str, today: str, clock: Callable[[], float] = time.time) -> Believed:
    """Set the known time to the clock's, if that shows the day that a person entered (UTC).

    Raises WrongDay.
    """
    engine = open_engine(url)
    try:
        now = moment_of(engine, clock)
        if datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d") != today:
            raise WrongDay(now)
        with engine.begin() as connection:
            _write(connection, believed := Believed(now, now))
        return believed
    finally:
        engine.dispose()


def _write(connection: Connection, believed: Believed) -> None:
    values.write(connection, _KEY, {"moment": believed.moment, "clock": believed.clock})


class KnownTime:
    """The known time of the one housekeeping process.

    `elapsed`: a counter of seconds that cannot be set. On PostgreSQL the clock is the database's.
    """

    def __init__(
        self, engine: Engine, clock: Callable[[], float], elapsed: Callable[[], float] = counter
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._elapsed = elapsed
        self._written: float | None = None
        self._anchor = (0.0, 0.0)  # a moment that was believed, and the counter then
        self._seen = (0.0, 0.0)  # the moment of the last look, and the counter then

    def look(self) -> Believed:
        """Move the known time to where it is plausible, and write it down.

        Raises SQLAlchemyError.
        """
        now = moment_of(self._engine, self._clock)
        elapsed = self._elapsed()
        with self._engine.begin() as connection:
            found = read(connection) or Believed(now, now)
            # At the start, or after another process has looked or confirmed.
            if found.moment != self._written:
                self._anchor = (found.moment, elapsed)
            plausible = self._anchor[0] + elapsed - self._anchor[1]
            moment = now if now <= plausible + PLAUSIBLE_SECONDS else plausible
            believed = Believed(max(moment, found.moment), now)
            _write(connection, believed)
        self._written = believed.moment
        self._seen = (min(now, believed.moment), elapsed)
        return believed

    def now(self) -> float:
        """The moment by which age is counted: it goes on from the last look."""
        if self._written is None:
            self.look()
        moment, elapsed = self._seen
        return moment + self._elapsed() - elapsed
