"""Studies that a release was chosen for and has not spoken about are given to another one: a person has lost faith in the first."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, select, update

from hilum.domain import ReadingState, Reason
from hilum.store import comparing
from hilum.store.reopening import reopen
from hilum.store.schema import assignment, comparison, reading, result

_CHUNK = 1000
_FRESH = ("lease_token", "leased_until", "reason", "detail", "finished_at", "logits", "member_logits", "cam", "view", "timings")


def take_back(connection: Connection, alias: str, left: str, to: str, now: float) -> int:
    """Studies of which `left` has no result are read anew by `to`; how many. Who is at one loses its lease."""
    of_study = result.c.study_instance_uid == assignment.c.study_instance_uid
    has_spoken = select(result.c.id).where(of_study, result.c.release == left, result.c.is_current.is_(True)).exists()
    chosen = and_(assignment.c.alias == alias, assignment.c.release == left, ~has_spoken)
    uids = connection.execute(select(assignment.c.study_instance_uid).where(chosen).order_by(assignment.c.id)).scalars().all()
    for start in range(0, len(uids), _CHUNK):
        _give(connection, uids[start : start + _CHUNK], alias, left, to, now)
    return len(uids)


def _give(connection: Connection, uids: Sequence[str], alias: str, left: str, to: str, now: float) -> None:
    _end_shadow(connection, uids, to)
    ours = and_(assignment.c.study_instance_uid.in_(uids), assignment.c.alias == alias)
    connection.execute(update(assignment).where(ours).values(release=to))
    readings = and_(reading.c.study_instance_uid.in_(uids), reading.c.release == left, reading.c.is_shadow.is_(False))
    due = {"state": ReadingState.DUE, "due_at": now, "attempts": 0, "lapses": 0, **dict.fromkeys(_FRESH)}
    is_wanted = reading.c.reason.is_distinct_from(Reason.REJECTED)
    connection.execute(update(reading).where(readings, is_wanted).values({**due, "release": to}))
    connection.execute(update(reading).where(readings).values(release=to))
    reopen(connection, uids, now)
    comparing.give(connection, uids, left, to, now)


def _end_shadow(connection: Connection, uids: Sequence[str], name: str) -> None:
    """A release that has read these studies along, long ago, is to speak for them now: one release reads an image once."""
    connection.execute(update(assignment).where(assignment.c.study_instance_uid.in_(uids), assignment.c.shadow == name).values(shadow=None))
    connection.execute(delete(comparison).where(comparison.c.study_instance_uid.in_(uids), comparison.c.shadow == name))
    along = and_(reading.c.study_instance_uid.in_(uids), reading.c.release == name, reading.c.is_shadow.is_(True))
    connection.execute(delete(reading).where(along))
