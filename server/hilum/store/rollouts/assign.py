"""The release that reads an image while releases are replaced: that of the first image.

A study keeps it to its end. It is written in the transaction that records the image, so that a verb
on a rollout comes before it or after it, and never in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, func, insert, select

from hilum.domain import Rollout, RolloutMode, RolloutState, alias_of
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.rollouts.rules import Chosen, choose
from hilum.store.schema.tables import assignment, reading, rollout

# Statements are built once (see `queue/queues`). The lock is shared: no verb on a rollout is
# decided beside a transaction whose images it would not see (PostgreSQL), nor the reverse.
_ROLLOUTS = PreparedStatement(select(rollout).with_for_update(read=True))
_KNOWN = select(assignment).where(
    assignment.c.study_instance_uid == bindparam("uid"), assignment.c.alias == bindparam("of")
)
_NEW = insert(assignment)
_READ_BY = (
    select(reading.c.release)
    .where(
        reading.c.study_instance_uid == bindparam("uid"),
        reading.c.is_shadow.is_(False),
        reading.c.campaign_id.is_(None),
    )
    .group_by(reading.c.release)
    .order_by(func.min(reading.c.id))
)


@dataclass(frozen=True, slots=True)
class ReadingReleases:
    """Releases that read an image: those that are reported, and each shadow.

    `shadows`: each to the release that it is compared with.
    """

    reported: tuple[str, ...]
    shadows: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignments:
    """The rollouts as they stand in this transaction, by alias.

    Without a rollout they cost no query.
    """

    rollouts: dict[str, Rollout]

    def readers(
        self, connection: Connection, study_uid: str, configured: Iterable[str], now: float
    ) -> ReadingReleases:
        """The releases that read an image of this study; its route names `configured`."""
        if not self.rollouts:
            return ReadingReleases(tuple(configured))
        chosen = [self._chosen(connection, study_uid, name, now) for name in configured]
        shadows = {item.shadow: item.release for item in chosen if item.shadow is not None}
        return ReadingReleases(tuple(dict.fromkeys(item.release for item in chosen)), shadows)

    def _chosen(
        self, connection: Connection, study_uid: str, configured: str, now: float
    ) -> Chosen:
        found = self.rollouts.get(alias_of(configured))
        if found is None:
            return Chosen(configured)
        key = {"uid": study_uid, "of": found.alias}
        if (row := connection.execute(_KNOWN, key).first()) is not None:
            return Chosen(row.release, row.shadow if _goes_on(found, row) else None)
        chosen = _began_with(connection, study_uid, found) or _new(found, configured, study_uid)
        values = {
            "study_instance_uid": study_uid,
            "alias": found.alias,
            "release": chosen.release,
            "shadow": chosen.shadow,
        }
        connection.execute(_NEW, {**values, "assigned_at": now})
        return chosen


def read(connection: Connection) -> Assignments:
    """Read the rollouts once for a batch of arrivals.

    Verbs on rollouts wait until the transaction ends.
    """
    return Assignments({row.alias: rollout_of(row) for row in _ROLLOUTS.all(connection)})


def rollout_of(row: PreparedRow) -> Rollout:
    """The rollout of a row."""
    return Rollout(
        alias=row.alias,
        configured=row.configured,
        serving=row.serving,
        state=RolloutState(row.state),
        changed_at=row.changed_at,
        changed_by=row.changed_by,
        previous=row.previous,
        candidate=row.candidate,
        mode=None if row.mode is None else RolloutMode(row.mode),
        fraction=row.fraction,
        problem=row.problem,
    )


def _new(found: Rollout, configured: str, study_uid: str) -> Chosen:
    """Choose for a new study. Changed settings win over a rollout."""
    is_ours = found.state is not RolloutState.CLOSED and found.configured == configured
    return choose(found, study_uid) if is_ours else Chosen(configured)


def _began_with(connection: Connection, study_uid: str, found: Rollout) -> Chosen | None:
    """The release that read earlier images of the study, from before the rollout.

    A release that read it later, over an archive, does not count.
    """
    ours = {found.configured, *found.releases}
    names = connection.execute(_READ_BY, {"uid": study_uid}).scalars()
    return next(
        (Chosen(name) for name in names if name in ours or alias_of(name) == found.alias), None
    )


def _goes_on(found: Rollout, row: PreparedRow) -> bool:
    """Whether the assignment still holds: a stopped shadow reads no late images."""
    return found.state is RolloutState.RUNNING and found.candidate == row.shadow
