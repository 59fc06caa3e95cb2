"""Leases of destinations: one dispatcher delivers to each destination.

So documents go out in order over one association.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select, text, update

from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.hand_off import Reservation
from hilum.store.schema.tables import destination

_WANTED = select(destination).where(destination.c.name == bindparam("wanted"))
_ROW = PreparedStatement(_WANTED)
_LOCKED = PreparedStatement(_WANTED.with_for_update())
# Several processes may insert a new destination at once (PostgreSQL): one gets its row, the others
# wait for it and find it. SQLAlchemy has this insert in each dialect only.
_NEW = PreparedStatement(
    text("INSERT INTO destination (name) VALUES (:wanted) ON CONFLICT (name) DO NOTHING")
)
# Sets the columns that its parameters name.
_OWN = PreparedStatement(update(destination).where(destination.c.name == bindparam("wanted")))


def is_held(connection: Connection, name: str, owner: str, until: float) -> bool:
    """Whether this dispatcher owns the destination until then, and it is not paused."""
    row = _ROW.first(connection, {"wanted": name})
    return (
        row is not None
        and not row.is_paused
        and row.owner == owner
        and (row.owned_until or 0.0) >= until
    )


def held_by(
    connection: Connection, reservations: Mapping[str | None, Reservation], now: float
) -> dict[str | None, Reservation]:
    """The reservations that may go on: without a destination, or with a lease on theirs.

    The lease must last half of its time at least.
    """
    return {
        name: reservation
        for name, reservation in reservations.items()
        if name is None
        or is_held(connection, name, reservation.owner, now + reservation.lease_seconds / 2)
    }


def take(connection: Connection, name: str, owner: str, now: float, seconds: float) -> bool:
    """Own the destination from now on, unless another dispatcher does or a person paused it."""
    row = _LOCKED.first(connection, {"wanted": name}) or _opened(connection, name)
    if row.is_paused or (row.owner not in (None, owner) and (row.owned_until or 0.0) > now):
        return False
    _OWN.write(connection, {"wanted": name, "owner": owner, "owned_until": now + seconds})
    return True


def pause(connection: Connection, name: str, *, is_paused: bool) -> bool:
    """Pause a destination, also one that was never used, or resume it; False: it was so before.

    While it is paused, no dispatcher takes it or goes on with it.
    """
    row = _LOCKED.first(connection, {"wanted": name}) or _opened(connection, name)
    _OWN.write(connection, {"wanted": name, "is_paused": is_paused})
    return bool(row.is_paused) is not is_paused


def _opened(connection: Connection, name: str) -> PreparedRow:
    _NEW.write(connection, {"wanted": name})
    return _LOCKED.one(connection, {"wanted": name})
