"""`reanalyse`: a release reads studies that were closed before it was there, of an archive of them some at a time: others write in between.

What is chosen is read first, without the lock that writers wait for, by ranges of rows: no
transaction goes through the whole archive.
A part is whole or not there: whoever repeats it after a crash gets the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import (
    ColumnElement,
    Connection,
    Exists,
    and_,
    case,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    true,
    update,
)

from hilum.domain import ComparisonState, Priority, ReadingState, StudyState, alias_of
from hilum.store.database.engines import begin_part, open_engine, open_reader, sync_of
from hilum.store.notify.notifier import notifier_for
from hilum.store.queue import comparisons
from hilum.store.queue.reopen import reopen
from hilum.store.schema.tables import assignment, comparison, instance, reading, result, study

_TOGETHER = 250  # studies of one transaction: others wait for the ledger meanwhile
_RANGE = 5_000  # rows of studies that one look goes through


@dataclass(frozen=True, slots=True)
class ReanalysisRequest:
    """Which release shall read what.

    `since`, `until`: of a study's last image, seconds since the epoch, the second excluded.

    AE Titles: those of its first image.
    `is_shadow`: nothing is reported, and each study is compared with what was; of several releases with one of `peers`, those that
    are rolled out with this one, or else of its alias.
    """

    release: str
    study_uids: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    calling_ae_title: str | None = None
    called_ae_title: str | None = None
    is_shadow: bool = False
    peers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Count:
    """Studies that are read anew and their images.

    What was left out: `open_studies`, `incomparable` ones, images `without_pixels`.
    """

    studies: int = 0
    images: int = 0
    open_studies: int = 0
    incomparable: int = 0
    without_pixels: int = 0

    def __add__(self, other: Count) -> Count:
        """Of two ranges together."""
        return Count(*(getattr(self, name) + getattr(other, name) for name in Count.__slots__))


@dataclass(frozen=True, slots=True)
class ScannedStudies:
    """At one range of studies, up to the row `until`: `ids` are those to be read."""

    until: int
    ids: Sequence[int]
    count: Count = field(default=Count())


class Reanalysis:
    """On the ledger at an SQLAlchemy URL."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url, is_synced=False)
        self._reader = open_reader(url)
        self._clock = clock
        self._sync = sync_of(url)
        self._notifier = notifier_for(url)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()
        self._notifier.close()

    def last_row(self) -> int:
        """Of studies: where `look` ends."""
        with self._reader.connect() as connection:
            return int(
                connection.execute(select(func.coalesce(func.max(study.c.id), 0))).scalar_one()
            )

    def look(self, order: ReanalysisRequest, last_row: int) -> Iterator[ScannedStudies]:
        """Range by range what there is to be read, oldest study first.

        Those named are one range.
        """
        size = last_row if order.study_uids else _RANGE
        for start in range(0, last_row, max(size, 1)):
            with self._reader.connect() as connection:
                looked = _look(connection, order, start, min(start + size, last_row))
            yield looked

    def begin(self, order: ReanalysisRequest, ids: Sequence[int]) -> Iterator[Count]:
        """Have these studies read; of each part how many studies and images.

        Once it has ended, it survives a power cut.
        """
        for start in range(0, len(ids), _TOGETHER):
            with begin_part(self._engine) as connection:
                done = _begin(connection, order, ids[start : start + _TOGETHER], self._clock())
                self._notifier.notify_in(connection, ("analyse", "assemble"))
            self._notifier.notify(("analyse", "assemble"))
            yield done
        self._sync()


def _by(order: ReanalysisRequest) -> Exists:
    """Whether the release has read an image, or is to, as the order wants it."""
    any_of = select(reading.c.id).where(
        reading.c.instance_id == instance.c.id, reading.c.release == order.release
    )
    return (any_of if order.is_shadow else any_of.where(reading.c.is_shadow.is_(False))).exists()


def _is_readable(order: ReanalysisRequest) -> ColumnElement[bool]:
    """Its pixels are there, or a shadow, which shall be reported now, has read them."""
    has_pixels = instance.c.pixels_removed_at.is_(None)
    along = select(reading.c.id).where(
        reading.c.instance_id == instance.c.id, reading.c.release == order.release
    )
    return has_pixels if order.is_shadow else or_(has_pixels, along.exists())


def _is_comparable(order: ReanalysisRequest) -> ColumnElement[bool]:
    """Whether another release has spoken for the study."""
    if not order.is_shadow:
        return true()
    of_study = result.c.study_instance_uid == study.c.study_instance_uid
    return (
        select(result.c.id)
        .where(of_study, result.c.is_current.is_(True), result.c.release != order.release)
        .exists()
    )


def _chosen(order: ReanalysisRequest) -> ColumnElement[bool]:
    parts = [study.c.state != StudyState.ERASED]
    if order.study_uids:
        parts.append(study.c.study_instance_uid.in_(order.study_uids))
    if order.since is not None:
        parts.append(study.c.last_received_at >= order.since)
    if order.until is not None:
        parts.append(study.c.last_received_at < order.until)
    if order.calling_ae_title is not None:
        parts.append(study.c.calling_ae_title == order.calling_ae_title)
    if order.called_ae_title is not None:
        parts.append(study.c.called_ae_title == order.called_ae_title)
    return and_(*parts)


def _look(
    connection: Connection, order: ReanalysisRequest, after: int, until: int
) -> ScannedStudies:
    is_readable = case((_is_readable(order), 1), else_=0)
    images = func.count().label("images")
    readable = func.sum(is_readable).label("readable")
    unread = and_(instance.c.is_removed.is_(False), not_(_by(order)))
    query = (
        select(
            study.c.id,
            study.c.state,
            case((_is_comparable(order), 1), else_=0).label("is_comparable"),
            images,
            readable,
        )
        .join(instance, instance.c.study_instance_uid == study.c.study_instance_uid)
        .where(study.c.id > after, study.c.id <= until, _chosen(order), unread)
        .group_by(study.c.id)
        .order_by(study.c.id)
    )
    ids = list[int]()
    count = Count()
    for row in connection.execute(query):
        left = Count(without_pixels=row.images - row.readable)
        if row.readable and row.state != StudyState.CLOSED:
            left = replace(left, open_studies=1)
        elif row.readable and not row.is_comparable:
            left = replace(left, incomparable=1)
        elif row.readable:
            ids.append(row.id)
            left = replace(left, studies=1, images=row.readable)
        count += left
    return ScannedStudies(until, ids, count)


def _begin(
    connection: Connection, order: ReanalysisRequest, ids: Sequence[int], now: float
) -> Count:
    """Those of one part that are still as they were found. Locked in the order of `recording`."""
    uids = (
        connection.execute(select(study.c.study_instance_uid).where(study.c.id.in_(ids)))
        .scalars()
        .all()
    )
    _hold_images(connection, uids)
    unread = and_(instance.c.is_removed.is_(False), not_(_by(order)), _is_readable(order))
    query = (
        select(instance.c.id, instance.c.study_instance_uid)
        .join(study, study.c.study_instance_uid == instance.c.study_instance_uid)
        .where(
            study.c.id.in_(ids), study.c.state == StudyState.CLOSED, _is_comparable(order), unread
        )
        .order_by(instance.c.id)
    )
    images = {row.id: row.study_instance_uid for row in connection.execute(query)}
    theirs = sorted(set(images.values()))
    if not theirs:
        return Count()
    known = set[int]() if order.is_shadow else _read_along(connection, order.release, theirs)
    if new := [
        _reading(order, number, uid, now) for number, uid in images.items() if number not in known
    ]:
        connection.execute(insert(reading), new)
    if order.is_shadow:
        for uid, reported in _compared_with(connection, order, theirs).items():
            comparisons.follow(connection, uid, {order.release: reported}, now)
    else:
        reopen(connection, theirs, now)
        _forget_comparisons(connection, order.release, theirs)
    return Count(studies=len(theirs), images=len(images))


def _hold_images(connection: Connection, uids: Sequence[str]) -> None:
    """Nobody else has them read by this release, or takes them out of results, until this ends (PostgreSQL)."""
    if connection.dialect.name == "postgresql":
        theirs = (
            select(instance.c.id)
            .where(instance.c.study_instance_uid.in_(uids))
            .order_by(instance.c.sop_instance_uid)
        )
        connection.execute(theirs.with_for_update()).all()


def _reading(
    order: ReanalysisRequest, instance_id: int, study_uid: str, now: float
) -> dict[str, object]:
    """The last priority: an archive must not hold up what somebody waits for."""
    return {
        "instance_id": instance_id,
        "study_instance_uid": study_uid,
        "release": order.release,
        "is_shadow": order.is_shadow,
        "state": ReadingState.DUE,
        "priority": Priority.REANALYSIS,
        "due_at": now,
    }


def _read_along(connection: Connection, name: str, uids: Sequence[str]) -> set[int]:
    """What a release has read along is to be reported, as it is; of which images."""
    ours = and_(assignment.c.study_instance_uid.in_(uids), assignment.c.shadow == name)
    connection.execute(update(assignment).where(ours).values(shadow=None))
    along = and_(
        reading.c.study_instance_uid.in_(uids),
        reading.c.release == name,
        reading.c.is_shadow.is_(True),
    )
    connection.execute(
        select(reading.c.id).where(along).order_by(reading.c.id).with_for_update()
    ).all()
    held = (
        connection.execute(
            update(reading).where(along).values(is_shadow=False).returning(reading.c.instance_id)
        )
        .scalars()
        .all()
    )
    return set(held)


def _forget_comparisons(connection: Connection, name: str, uids: Sequence[str]) -> None:
    """It reads along no longer; comparisons that were made stay.

    After the studies, in the order of `recording`.
    """
    of_shadow = and_(comparison.c.study_instance_uid.in_(uids), comparison.c.shadow == name)
    connection.execute(
        delete(comparison).where(of_shadow, comparison.c.state != ComparisonState.COMPARED)
    )


def _compared_with(
    connection: Connection, order: ReanalysisRequest, uids: Sequence[str]
) -> dict[str, str]:
    """For each study, in the order of locks, who has spoken for it.

    What is rolled out with ours, else of its alias, else the newest.
    """
    of_others = and_(
        result.c.study_instance_uid.in_(uids),
        result.c.is_current.is_(True),
        result.c.release != order.release,
    )
    query = (
        select(result.c.study_instance_uid, result.c.release)
        .where(of_others)
        .order_by(result.c.study_instance_uid, result.c.id)
    )
    found: dict[str, str] = {}
    for uid, name in connection.execute(query):
        if uid not in found or _nearness(order, name) >= _nearness(order, found[uid]):
            found[uid] = name
    return found


def _nearness(order: ReanalysisRequest, release: str) -> tuple[bool, bool]:
    return release in order.peers, alias_of(release) == alias_of(order.release)
