"""Leases of destinations: each destination has one dispatcher that delivers to it, so that documents go out in order over one association."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select, text, update

from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.hand_off import Heir
from hilum.store.schema.tables import destination

_WANTED = select(destination).where(destination.c.name == bindparam("wanted"))
_ROW = PreparedStatement(_WANTED)
_LOCKED = PreparedStatement(_WANTED.with_for_update())
# Several may meet a new destination at once (PostgreSQL): one has its row, the others wait for it
# and find it. SQLAlchemy's own words for it are each dialect's.
_NEW = PreparedStatement(
    text("INSERT INTO destination (name) VALUES (:wanted) ON CONFLICT (name) DO NOTHING")
)
_OWN = PreparedStatement(
    update(destination).where(destination.c.name == bindparam("wanted"))
)  # sets the columns that its parameters name


def is_held(connection: Connection, name: str, owner: str, until: float) -> bool:
    """Whether this dispatcher owns the destination until then, and nobody paused it."""
    row = _ROW.first(connection, {"wanted": name})
    return (
        row is not None
        and not row.is_paused
        and row.owner == owner
        and (row.owned_until or 0.0) >= until
    )


def held_by(
    connection: Connection, heirs: Mapping[str | None, Heir], now: float
) -> dict[str | None, Heir]:
    """Of these, who may go on: those without a destination, and those that own theirs for half of a lease at least."""
    return {
        name: heir
        for name, heir in heirs.items()
        if name is None or is_held(connection, name, heir.owner, now + heir.lease_seconds / 2)
    }


def take(connection: Connection, name: str, owner: str, now: float, seconds: float) -> bool:
    """Own it from now on, unless another dispatcher does or a person paused it."""
    row = _LOCKED.first(connection, {"wanted": name}) or _opened(connection, name)
    if row.is_paused or (row.owner not in (None, owner) and (row.owned_until or 0.0) > now):
        return False
    _OWN.write(connection, {"wanted": name, "owner": owner, "owned_until": now + seconds})
    return True


def pause(connection: Connection, name: str, *, is_paused: bool) -> None:
    """Nobody takes it, or goes on with it, until it is resumed.

    Also one that nobody has used yet.
    """
    _NEW.write(connection, {"wanted": name})
    _OWN.write(connection, {"wanted": name, "is_paused": is_paused})


def _opened(connection: Connection, name: str) -> PreparedRow:
    _NEW.write(connection, {"wanted": name})
    return _LOCKED.one(connection, {"wanted": name})
