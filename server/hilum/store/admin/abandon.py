"""`forget`: what is owed to somebody who is gone is given up, so that nobody waits for it and pixels may leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, delete, func, or_, select

from hilum.domain import CommitmentState, DeliveryState
from hilum.store.queue import complete
from hilum.store.schema.tables import commitment, delivery, destination

_REASON: Final = "destination_forgotten"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What it did.

    `in_work`: deliveries that a dispatcher holds which still has earlier settings; they are left
    alone.
    """

    cancelled: int
    in_work: int


def forget(connection: Connection, name: str, now: float) -> Forgotten:
    """End its deliveries that are due, dead or withheld, or whose lease nobody holds any more.

    Tries stay known, also of who died with one: the receiver may have the document, and a successor
    may have to name it. The lease goes, too, so that nothing lists it; but not while a dispatcher
    owns it. Idempotent.
    """
    has_lapsed = and_(delivery.c.state == DeliveryState.LEASED, delivery.c.leased_until < now)
    is_open = or_(
        delivery.c.state.in_((DeliveryState.DUE, DeliveryState.DEAD, DeliveryState.WITHHELD)),
        has_lapsed,
    )
    cancelled = complete.cancel(
        connection, and_(delivery.c.destination == name, is_open), _REASON, now
    )
    held = and_(delivery.c.destination == name, delivery.c.state == DeliveryState.LEASED)
    in_work = connection.execute(
        select(func.count()).select_from(delivery).where(held)
    ).scalar_one()
    is_free = or_(destination.c.owner.is_(None), destination.c.owned_until < now)
    if not in_work:
        connection.execute(delete(destination).where(destination.c.name == name, is_free))
    return Forgotten(cancelled, in_work)


def forget_commitments(connection: Connection, calling_ae_title: str) -> int:
    """Delete the dead reports of who asked; how many.

    Nothing rests on them (see `outdated`), and who asks again gets a new row.
    """
    dead = and_(
        commitment.c.state == CommitmentState.DEAD,
        commitment.c.calling_ae_title == calling_ae_title,
    )
    return connection.execute(delete(commitment).where(dead)).rowcount
