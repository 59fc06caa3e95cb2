"""`complete`: end a study's quiet period now, at a person's request."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, select, update

from hilum.domain import ReadingState, Reason, StudyState
from hilum.store.schema.tables import reading, study


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
        "reason": Reason.NOT_WAITED_FOR,
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
