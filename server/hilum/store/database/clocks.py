"""How this host's clock stands to the database's, which all hosts of an installation have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine, text

DIFFERS_SECONDS: Final = 2.0
"""From here on the clocks differ: quiet periods may be as short as that."""

_NOW: Final = text("SELECT extract(epoch FROM clock_timestamp())")


def ahead_seconds(engine: Engine, clock: Callable[[], float]) -> float:
    """How far `clock` is ahead of the database's, negative behind.

    0: they agree as far as can be told, or it is SQLite.

    What the question's way may have taken counts for nothing.
    """
    if engine.dialect.name != "postgresql":
        return 0.0
    with engine.connect() as connection:
        before = clock()
        theirs = float(connection.execute(_NOW).scalar_one())
        after = clock()
    return max(before - theirs, 0.0) + min(after - theirs, 0.0)


def moment_of(engine: Engine, clock: Callable[[], float]) -> float:
    """Now, by the database's clock, which all hosts have in common; `clock` where it is SQLite."""
    if engine.dialect.name != "postgresql":
        return clock()
    with engine.connect() as connection:
        return float(connection.execute(_NOW).scalar_one())
