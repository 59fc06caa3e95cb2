"""Reopening of closed studies whose images have changed since their result."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, case, func, select, update

from hilum.domain import ReadingState, StudyState
from hilum.store.schema.tables import reading, study

_IS_OPEN = case(
    (
        and_(
            reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED)),
            reading.c.is_shadow.is_(False),
        ),
        1,
    ),
    else_=0,
)
OPEN_READINGS = (
    select(func.coalesce(func.sum(_IS_OPEN), 0))
    .where(reading.c.study_instance_uid == study.c.study_instance_uid)
    .scalar_subquery()
)
"""The number of open readings that a study waits for."""


def reopen(connection: Connection, study_uids: Collection[str], now: float) -> None:
    """Make these studies due as soon as no reading is open. A running quiet period goes on.

    Clearing the lease fences out an assembler that saw the study as it was.
    """
    values = {
        "state": StudyState.DUE,
        "revision": study.c.revision + 1,
        "open_readings": OPEN_READINGS,
        **moments(now),
        "attempts": 0,
        "lapses": 0,
        "lease_token": None,
        "leased_until": None,
        "finished_at": None,
        "reason": None,
        "detail": None,
    }
    chosen = and_(study.c.study_instance_uid.in_(study_uids), study.c.state != StudyState.ERASED)
    lock(connection, chosen)
    connection.execute(update(study).where(chosen).values(values))


def moments(now: float) -> dict[str, ColumnElement[float]]:
    """Columns of a study that is due again: now, or when its running quiet period ends."""
    is_collecting = and_(
        study.c.state.in_((StudyState.DUE, StudyState.LEASED)), study.c.quiet_until > now
    )
    until = case((is_collecting, study.c.quiet_until), else_=now)
    since = case((is_collecting, study.c.collecting_since), else_=now)
    return {"quiet_until": until, "due_at": until, "collecting_since": since}


def lock(connection: Connection, chosen: ColumnElement[bool]) -> None:
    """Lock these studies before their open readings are counted.

    On PostgreSQL a statement that waits for a row counts the rows from before its wait: a reading
    that ended meanwhile would stay open.
    """
    connection.execute(
        select(study.c.id).where(chosen).order_by(study.c.study_instance_uid).with_for_update()
    ).all()
