"""Comparisons: the queue of studies that a shadow reads, too. No study waits for a row of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, insert, null, select, update

from hilum.domain import ComparisonJob, ComparisonState, Lease, Priority, ResultState, StudyJob
from hilum.store.database.prepared import PreparedRow
from hilum.store.schema import codec
from hilum.store.schema.tables import comparison, instance, reading, result, study

# A comparison is due when the last reading of its shadow ends. This bound is for a crash or a
# requeue that hides that moment.
_PATIENCE_SECONDS = 3600.0
_FRESH: Mapping[str, Any] = {
    "state": ComparisonState.DUE,
    "attempts": 0,
    "lapses": 0,
    "lease_token": None,
    "leased_until": None,
    "reason": None,
    "detail": None,
    "finished_at": None,
}
_AGAIN = update(comparison).where(
    comparison.c.study_instance_uid == bindparam("uid"), comparison.c.shadow == bindparam("by")
)
_NEW = insert(comparison)
_OPEN = ("due", "leased")
# In one order, or two transactions that end readings of the same shadows would wait for each other
# (PostgreSQL).
_OF_SHADOWS = (
    select(reading.c.study_instance_uid, reading.c.release)
    .where(reading.c.id.in_(bindparam("ended", expanding=True)), reading.c.is_shadow.is_(True))
    .distinct()
    .order_by(reading.c.study_instance_uid, reading.c.release)
)
_OPEN_READING = select(reading.c.id).where(
    reading.c.study_instance_uid == bindparam("uid"),
    reading.c.release == bindparam("by"),
    reading.c.state.in_(_OPEN),
)
_DUE = and_(
    comparison.c.study_instance_uid == bindparam("uid"),
    comparison.c.shadow == bindparam("by"),
    comparison.c.state == ComparisonState.DUE,
)
# Locked before the readings are looked at: of two that end at once, the second must see the first.
_LOCKED = select(comparison.c.id).where(_DUE).with_for_update()
_HASTEN = update(comparison).where(comparison.c.id == bindparam("row"))
_STUDY = select(study).where(study.c.study_instance_uid == bindparam("uid"))
_INSTANCES = (
    select(instance)
    .where(instance.c.study_instance_uid == bindparam("uid"))
    .order_by(instance.c.id)
)
_READINGS = (
    select(*(column for column in reading.c if column is not reading.c.cam))
    .where(
        reading.c.study_instance_uid == bindparam("uid"),
        reading.c.release == bindparam("by"),
        reading.c.is_shadow.is_(True),
    )
    .order_by(reading.c.id)
)
_OF_RELEASE = and_(
    result.c.study_instance_uid == bindparam("uid"), result.c.release == bindparam("by")
)
_SHADOW_RESULT = select(result).where(_OF_RELEASE, result.c.state == ResultState.SHADOW)
_REPORTED_RESULT = select(result).where(_OF_RELEASE, result.c.is_current.is_(True))


def follow(connection: Connection, study_uid: str, shadows: Mapping[str, str], now: float) -> None:
    """Compare a study of a new image with its shadows, once the image was read.

    `shadows`: each shadow to the release reported.
    """
    for shadow, release in sorted(shadows.items()):  # in the order of `hasten`
        if not reopen(connection, study_uid, now, [shadow]):
            key = {"study_instance_uid": study_uid, "release": release, "shadow": shadow}
            connection.execute(
                _NEW,
                {
                    **key,
                    "state": ComparisonState.DUE,
                    "priority": Priority.REANALYSIS,
                    "due_at": now + _PATIENCE_SECONDS,
                },
            )


def reopen(connection: Connection, study_uid: str, now: float, shadows: Iterable[str]) -> int:
    """Make comparisons due again after readings were opened again, and return their number.

    A worker that holds one loses its lease.
    """
    again = {"uid": study_uid, **_FRESH, "due_at": now + _PATIENCE_SECONDS}
    return sum(
        connection.execute(_AGAIN, {**again, "by": shadow}).rowcount for shadow in sorted(shadows)
    )


def give(
    connection: Connection, study_uids: Collection[str], left: str, to: str, now: float
) -> None:
    """Compare these studies with another release, which is the reported one from now on."""
    theirs = select(comparison.c.id, comparison.c.release).where(
        comparison.c.study_instance_uid.in_(study_uids)
    )
    locked = connection.execute(theirs.order_by(comparison.c.id).with_for_update())
    # In a condition, SQLite would look among all comparisons of that release.
    rows = [row.id for row in locked if row.release == left]
    again = {**_FRESH, "release": to, "content": null(), "due_at": now + _PATIENCE_SECONDS}
    connection.execute(update(comparison).where(comparison.c.id.in_(rows)).values(again))


def hasten(connection: Connection, reading_ids: Collection[int], now: float) -> None:
    """Make comparisons due after readings of their shadows have ended.

    A study is compared after the last one. Studies of erased patients have no row here.
    """
    for row in connection.execute(_OF_SHADOWS, {"ended": list(reading_ids)}).all():
        _hasten(connection, row.study_instance_uid, row.release, now)


def _hasten(connection: Connection, study_uid: str, shadow: str, now: float) -> None:
    key = {"uid": study_uid, "by": shadow}
    due = connection.execute(_LOCKED, key).scalar_one_or_none()
    if due is not None and connection.execute(_OPEN_READING, key).first() is None:
        quiet_until = connection.execute(_STUDY, {"uid": study_uid}).one().quiet_until
        connection.execute(_HASTEN, {"row": due, "due_at": max(now, quiet_until)})


def comparison_job(connection: Connection, row: PreparedRow, lease: Lease) -> ComparisonJob:
    """The job of a claimed comparison."""
    key = {"uid": row.study_instance_uid, "by": row.release}
    reported = connection.execute(_REPORTED_RESULT, key).first()
    return ComparisonJob(
        lease=lease,
        release=row.release,
        shadow_release=row.shadow,
        shadow=_shadow_job(connection, row, lease),
        reported=None if reported is None else codec.result_of(reported),
    )


def _shadow_job(connection: Connection, row: PreparedRow, lease: Lease) -> StudyJob:
    """The study as the shadow has read it."""
    uid = row.study_instance_uid
    found = connection.execute(_STUDY, {"uid": uid}).one()
    images = connection.execute(_INSTANCES, {"uid": uid}).all()
    readings = connection.execute(_READINGS, {"uid": uid, "by": row.shadow}).all()
    results = connection.execute(_SHADOW_RESULT, {"uid": uid, "by": row.shadow}).all()
    return StudyJob(
        lease=lease,
        study=codec.study_of(found),
        instances=tuple(map(codec.instance_of, images)),
        readings=codec.readings_of(readings, images),
        current_results=tuple(map(codec.result_of, results)),
    )
