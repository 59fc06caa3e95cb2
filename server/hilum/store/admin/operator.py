"""Verbs of a person: end a study's quiet period, or give up all that a gone peer is owed.

After `forget` nothing waits for the peer any more, and the pixels may leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select, update

from hilum.domain import CommitmentState, DeliveryState, ReadingState, ServerReason, StudyState
from hilum.store.queue.complete import cancel
from hilum.store.schema.tables import commitment, delivery, destination, reading, study

_REASON: Final = "destination_forgotten"


@dataclass(frozen=True, slots=True)
class Completed:
    """The effect of `complete`.

    `state`: of the study before; only a due study has a quiet period. `waits_for`: readings that
    are still open.
    """

    state: StudyState
    ended_readings: int
    waits_for: int


def complete(
    connection: Connection, study_uid: str, now: float, *, is_waiting: bool
) -> Completed | None:
    """Assemble the study as soon as no reading is open.

    `is_waiting` False: open readings without a lease end as `not_waited_for`. Idempotent. A study
    that is being assembled, or has ended, is left alone.
    """
    # Readings first, in the order of locks of `record`.
    ended = 0 if is_waiting else _end_due(connection, study_uid, now)
    row = connection.execute(
        select(study).where(study.c.study_instance_uid == study_uid).with_for_update()
    ).first()
    if row is None:
        return None
    waits_for = _count_open(connection, study_uid)
    connection.execute(update(study).where(study.c.id == row.id).values(open_readings=waits_for))
    is_due = and_(study.c.id == row.id, study.c.state == StudyState.DUE)
    connection.execute(
        update(study).where(is_due).values(due_at=now, quiet_until=min(row.quiet_until, now))
    )
    return Completed(StudyState(row.state), ended, waits_for)


def _count_open(connection: Connection, study_uid: str) -> int:
    is_open = reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED))
    query = select(func.count()).where(_of_study(study_uid), is_open)
    return int(connection.execute(query).scalar_one())


def _end_due(connection: Connection, study_uid: str, now: float) -> int:
    due = and_(_of_study(study_uid), reading.c.state == ReadingState.DUE)
    detail = "`hilum requeue analyse --study` has it read after all"
    values = {
        "state": ReadingState.NOT_ANALYSED,
        "reason": ServerReason.NOT_WAITED_FOR,
        "detail": detail,
        "finished_at": now,
    }
    connection.execute(
        select(reading.c.id).where(due).order_by(reading.c.id).with_for_update()
    ).all()
    return connection.execute(update(reading).where(due).values(values)).rowcount


def _of_study(study_uid: str) -> ColumnElement[bool]:
    """Readings for which the study waits."""
    return and_(reading.c.study_instance_uid == study_uid, reading.c.is_shadow.is_(False))


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
    cancelled = cancel(connection, is_open, _REASON, now)
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
