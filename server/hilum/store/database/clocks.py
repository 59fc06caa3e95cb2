"""The difference between this host's clock and the database's, which all hosts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine, text

DIFFERS_SECONDS: Final = 2.0
"""Clocks differ from here on: quiet periods may be as short."""

_NOW: Final = text("SELECT extract(epoch FROM clock_timestamp())")


def ahead_seconds(engine: Engine, clock: Callable[[], float]) -> float:
    """Seconds by which `clock` is ahead of the database's clock; negative: behind.

    0: no difference within the time of the query, or SQLite.
    """
    if engine.dialect.name != "postgresql":
        return 0.0
    with engine.connect() as connection:
        before = clock()
        theirs = float(connection.execute(_NOW).scalar_one())
        after = clock()
    return max(before - theirs, 0.0) + min(after - theirs, 0.0)


def moment_of(engine: Engine, clock: Callable[[], float]) -> float:
    """Now, by the database's clock, which all hosts share; by `clock` with SQLite."""
    if engine.dialect.name != "postgresql":
        return clock()
    with engine.connect() as connection:
        return float(connection.execute(_NOW).scalar_one())
