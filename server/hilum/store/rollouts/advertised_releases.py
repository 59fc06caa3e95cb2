"""Which releases the settings of running servers name.

Each supervisor says it with its heartbeat, for those whose settings differ.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, select

from hilum.store.schema.tables import process

SUPERVISOR: Final = "supervisor"
RUNNING_SECONDS: Final = 60.0
"""So long after its last heartbeat a server counts as running: clocks of hosts may differ a little, and its ledger be away for a moment."""

_BEGINNING: Final = "its settings name "


def in_words(releases: Collection[str]) -> str:
    """The detail of a supervisor's heartbeat."""
    return f"{_BEGINNING}{', '.join(releases) or 'no release'}"


def is_named(connection: Connection, release: str, since: float) -> bool:
    """Whether a server that was heard of since then (seconds since the epoch) names this release in its settings."""
    running = select(process.c.detail).where(
        process.c.role == SUPERVISOR, process.c.beat_at >= since
    )
    return any(
        release in (said or "").removeprefix(_BEGINNING).split(", ")
        for said in connection.execute(running).scalars()
    )
