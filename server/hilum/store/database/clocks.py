"""The difference between this host's clock and the database's, which all hosts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, text

DIFFERS_SECONDS: Final = 2.0
"""Clocks differ from here on: quiet periods may be as short."""

_NOW: Final = text("SELECT extract(epoch FROM clock_timestamp())")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A comparison of clocks.

    `offset_seconds`: this host's clock less the database's, at the middle of the round trip.
    """

    offset_seconds: float
    round_trip_seconds: float

    @property
    def certain_seconds(self) -> float:
        """The part of the offset that the round trip cannot explain; negative: behind."""
        half = self.round_trip_seconds / 2
        return max(self.offset_seconds - half, 0.0) + min(self.offset_seconds + half, 0.0)


def read_clock(engine: Engine, clock: Callable[[], float]) -> ClockReading | None:
    """Compare `clock` with the database's clock.

    None: SQLite, which has no clock but the host's.
    """
    if engine.dialect.name != "postgresql":
        return None
    with engine.connect() as connection:
        _now(connection)  # the transaction begins with it, which takes a round trip of its own
        before = clock()
        theirs = _now(connection)
        after = clock()
    return ClockReading((before + after) / 2 - theirs, max(after - before, 0.0))


def ahead_seconds(engine: Engine, clock: Callable[[], float]) -> float:
    """Seconds by which `clock` is ahead of the database's clock; negative: behind.

    0: no difference within the time of the query, or SQLite.
    """
    reading = read_clock(engine, clock)
    return 0.0 if reading is None else reading.certain_seconds


def moment_of(engine: Engine, clock: Callable[[], float]) -> float:
    """Now, by the database's clock, which all hosts share; by `clock` with SQLite."""
    if engine.dialect.name != "postgresql":
        return clock()
    with engine.connect() as connection:
        return _now(connection)


def moment_in(connection: Connection, clock: Callable[[], float]) -> float:
    """As `moment_of`, in a transaction that has begun."""
    return clock() if connection.dialect.name != "postgresql" else _now(connection)


def _now(connection: Connection) -> float:
    return float(connection.execute(_NOW).scalar_one())
