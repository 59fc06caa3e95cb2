"""Releases that the settings of running servers name.

Each supervisor has them in its heartbeat, because the settings of servers differ.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, select

from hilum.store.schema.tables import process

SUPERVISOR: Final = "supervisor"
RUNNING_SECONDS: Final = 60.0
"""A server counts as running for this long after its last heartbeat.

Clocks of hosts may differ a little, and the ledger may be away for a moment.
"""

_BEGINNING: Final = "its settings name "


def in_words(releases: Collection[str]) -> str:
    """The detail of a supervisor's heartbeat."""
    return f"{_BEGINNING}{', '.join(releases) or 'no release'}"


def is_named(connection: Connection, release: str, since: float) -> bool:
    """Whether a server with a heartbeat since then names this release in its settings.

    `since`: seconds since the epoch.
    """
    running = select(process.c.detail).where(
        process.c.role == SUPERVISOR, process.c.beat_at >= since
    )
    return any(
        release in (said or "").removeprefix(_BEGINNING).split(", ")
        for said in connection.execute(running).scalars()
    )
