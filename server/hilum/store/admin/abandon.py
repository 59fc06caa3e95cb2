"""`forget`: give up deliveries and reports to a peer that is gone.

Nothing waits for them any more, and the pixels may leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select

from hilum.domain import CommitmentState, DeliveryState
from hilum.store.queue import complete
from hilum.store.schema.tables import commitment, delivery, destination

_REASON: Final = "destination_forgotten"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Counts of the deliveries that `forget` ended.

    `in_work`: deliveries held by a dispatcher with earlier settings; they are left alone.
    """

    cancelled: int
    in_work: int


def forget(connection: Connection, name: str, now: float) -> Forgotten:
    """End a destination's deliveries that are due, dead, withheld, or whose lease has lapsed.

    The tries stay known, also of a delivery that lapsed. The receiver may have the document, and a
    later document may have to name it as its predecessor. The destination's lease is deleted, so
    that no list shows it, unless a dispatcher owns it. Idempotent.
    """
    is_open = and_(delivery.c.destination == name, _is_open(now))
    cancelled = complete.cancel(connection, is_open, _REASON, now)
    in_work = _count_held(connection, name)
    if not in_work:
        is_free = or_(destination.c.owner.is_(None), destination.c.owned_until < now)
        connection.execute(delete(destination).where(destination.c.name == name, is_free))
    return Forgotten(cancelled, in_work)


def _count_held(connection: Connection, name: str) -> int:
    held = and_(delivery.c.destination == name, delivery.c.state == DeliveryState.LEASED)
    return int(
        connection.execute(select(func.count()).select_from(delivery).where(held)).scalar_one()
    )


def _is_open(now: float) -> ColumnElement[bool]:
    """A condition on a delivery that is not finished and that no worker holds."""
    has_lapsed = and_(delivery.c.state == DeliveryState.LEASED, delivery.c.leased_until < now)
    waits = delivery.c.state.in_((DeliveryState.DUE, DeliveryState.DEAD, DeliveryState.WITHHELD))
    return or_(waits, has_lapsed)


def forget_commitments(connection: Connection, calling_ae_title: str) -> int:
    """Delete the dead reports that this AE Title requested, and return their number.

    Nothing depends on them (see `retention/history`). A repeated request gets a new row.
    """
    dead = and_(
        commitment.c.state == CommitmentState.DEAD,
        commitment.c.calling_ae_title == calling_ae_title,
    )
    return connection.execute(delete(commitment).where(dead)).rowcount
