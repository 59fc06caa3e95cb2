"""Reassignment of studies without a result to another release.

A person has lost faith in the release that was chosen for them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from hilum.domain import ReadingState, ServerReason
from hilum.store.queue import comparisons
from hilum.store.queue.reopen import reopen
from hilum.store.schema.tables import assignment, comparison, reading, result

TOGETHER = 200  # studies of one transaction: others wait for the ledger meanwhile, 0.3 ms for each
_FRESH = (
    "lease_token",
    "leased_until",
    "reason",
    "detail",
    "finished_at",
    "logits",
    "member_logits",
    "cam",
    "view",
    "timings",
)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Studies of which `left` has no result are read anew by `to`, a release of the same alias.

    A worker that holds one loses its lease.
    """

    alias: str
    left: str
    to: str

    @property
    def _chosen(self) -> ColumnElement[bool]:
        of_study = result.c.study_instance_uid == assignment.c.study_instance_uid
        has_spoken = (
            select(result.c.id)
            .where(of_study, result.c.release == self.left, result.c.is_current.is_(True))
            .exists()
        )
        return and_(
            assignment.c.alias == self.alias, assignment.c.release == self.left, ~has_spoken
        )

    def find(self, connection: Connection) -> Sequence[int]:
        """Row ids of their assignments."""
        return array(
            "q",
            connection.execute(
                select(assignment.c.id).where(self._chosen).order_by(assignment.c.id)
            ).scalars(),
        )

    def take(self, connection: Connection, rows: Sequence[int], now: float) -> int:
        """Reassign those of one part that still have no result, and return their number."""
        of_rows = and_(assignment.c.id.in_(list(rows)), self._chosen)
        uids = (
            connection.execute(
                select(assignment.c.study_instance_uid).where(of_rows).order_by(assignment.c.id)
            )
            .scalars()
            .all()
        )
        if uids:
            _give(connection, uids, self.alias, self.left, self.to, now)
        return len(uids)


def parts(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield parts of the size of one transaction."""
    return (rows[start : start + TOGETHER] for start in range(0, len(rows), TOGETHER))


def _give(
    connection: Connection, uids: Sequence[str], alias: str, left: str, to: str, now: float
) -> None:
    _end_shadow(connection, uids, to)
    ours = and_(assignment.c.study_instance_uid.in_(uids), assignment.c.alias == alias)
    connection.execute(update(assignment).where(ours).values(release=to))
    _give_readings(connection, uids, left, to, now)
    reopen(connection, uids, now)
    comparisons.give(connection, uids, left, to, now)


def _give_readings(
    connection: Connection, uids: Sequence[str], left: str, to: str, now: float
) -> None:
    """Have these studies read anew by another release.

    Not images that were rejected, or that a rule keeps from releases.
    """
    readings = and_(
        reading.c.study_instance_uid.in_(uids),
        reading.c.release == left,
        reading.c.is_shadow.is_(False),
    )
    due = {
        "state": ReadingState.DUE,
        "due_at": now,
        "attempts": 0,
        "lapses": 0,
        **dict.fromkeys(_FRESH),
    }
    is_wanted = and_(
        reading.c.reason.is_distinct_from(ServerReason.REJECTED),
        reading.c.reason.is_distinct_from(ServerReason.NOT_ANALYSED_BY_RULE),
    )
    connection.execute(update(reading).where(readings, is_wanted).values({**due, "release": to}))
    connection.execute(update(reading).where(readings).values(release=to))


def _end_shadow(connection: Connection, uids: Sequence[str], name: str) -> None:
    """End readings in which this release read these studies as a shadow.

    It is the reported release now, and one release reads an image once.
    """
    connection.execute(
        update(assignment)
        .where(assignment.c.study_instance_uid.in_(uids), assignment.c.shadow == name)
        .values(shadow=None)
    )
    connection.execute(
        delete(comparison).where(
            comparison.c.study_instance_uid.in_(uids), comparison.c.shadow == name
        )
    )
    of_shadow = and_(
        reading.c.study_instance_uid.in_(uids),
        reading.c.release == name,
        reading.c.is_shadow.is_(True),
    )
    connection.execute(delete(reading).where(of_shadow))
