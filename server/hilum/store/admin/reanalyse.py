"""`reanalyse`: a release reads studies that were closed before it was there.

An archive of them is opened some at a time, so that others write in between. The studies are chosen
first, by ranges of rows, without the lock that writers wait for. No transaction goes through the
whole archive. Each part is one transaction: a repetition after a crash opens the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Exists,
    Row,
    Select,
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

from hilum.domain import ComparisonState, Priority, ReadingState, ServerReason, StudyState, alias_of
from hilum.store.database.engines import begin_part, open_engine, open_reader, sync_of
from hilum.store.notify.notifier import notifier_for
from hilum.store.queue import comparisons
from hilum.store.queue.reopen import reopen
from hilum.store.schema.tables import assignment, comparison, instance, reading, result, study

_TOGETHER = 250  # studies of one transaction: others wait for the ledger meanwhile
_RANGE = 5_000  # rows of studies in one range of `look`


@dataclass(frozen=True, slots=True)
class ReanalysisRequest:
    """The studies that a release shall read.

    `since`, `until`: of a study's last image, seconds since the epoch, `until` excluded. AE Titles:
    those of its first image. `is_shadow`: the results are not reported, and each study is compared
    with its reported result. Of several releases the one compared is one of `peers`, which are
    rolled out with this release, else one of its alias. `sop_instance_uids`: only these images;
    empty: all. `campaign_id`: the campaign that wants the readings.
    """

    release: str
    study_uids: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    calling_ae_title: str | None = None
    called_ae_title: str | None = None
    is_shadow: bool = False
    peers: frozenset[str] = frozenset()
    sop_instance_uids: tuple[str, ...] = ()
    campaign_id: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of studies that are read again, and of their images.

    Left out: `open_studies`, `incomparable` studies, and images `without_pixels`.
    """

    studies: int = 0
    images: int = 0
    open_studies: int = 0
    incomparable: int = 0
    without_pixels: int = 0

    def __add__(self, other: Count) -> Count:
        """The sum of two ranges."""
        return Count(*(getattr(self, name) + getattr(other, name) for name in Count.__slots__))


@dataclass(frozen=True, slots=True)
class ScannedStudies:
    """One range of studies, up to the row `until`; `ids` are those to be read."""

    until: int
    ids: Sequence[int]
    count: Count = field(default=Count())


class Reanalysis:
    """Reanalysis on the ledger at an SQLAlchemy URL."""

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
        """The last row id of studies, where `look` ends."""
        with self._reader.connect() as connection:
            return int(
                connection.execute(select(func.coalesce(func.max(study.c.id), 0))).scalar_one()
            )

    def look(self, order: ReanalysisRequest, last_row: int) -> Iterator[ScannedStudies]:
        """Yield the studies to be read, range by range, oldest study first.

        Studies named by UID are one range.
        """
        size = last_row if order.study_uids else _RANGE
        for start in range(0, last_row, max(size, 1)):
            with self._reader.connect() as connection:
                looked = _look(connection, order, start, min(start + size, last_row))
            yield looked

    def begin(self, order: ReanalysisRequest, ids: Sequence[int]) -> Iterator[Count]:
        """Open these studies for reading, and yield the counts of each part.

        After the last part the rows survive a power cut.
        """
        for start in range(0, len(ids), _TOGETHER):
            with begin_part(self._engine) as connection:
                done = _begin(connection, order, ids[start : start + _TOGETHER], self._clock())
                self._notifier.notify_in(connection, ("analyse", "assemble"))
            self._notifier.notify(("analyse", "assemble"))
            yield done
        self._sync()


def _by(order: ReanalysisRequest) -> Exists:
    """Whether the release has read the image, or is to read it, with the request's `is_shadow`."""
    any_of = select(reading.c.id).where(
        reading.c.instance_id == instance.c.id, reading.c.release == order.release
    )
    return (any_of if order.is_shadow else any_of.where(reading.c.is_shadow.is_(False))).exists()


def _is_unread(order: ReanalysisRequest) -> ColumnElement[bool]:
    """Whether the release shall read the image and has not.

    An image that a rule keeps from releases is read only where its study is named.
    """
    is_unread = and_(instance.c.is_removed.is_(False), not_(_by(order)))
    kept_out = select(reading.c.id).where(
        reading.c.instance_id == instance.c.id,
        reading.c.reason == ServerReason.NOT_ANALYSED_BY_RULE,
    )
    return is_unread if order.study_uids else and_(is_unread, not_(kept_out.exists()))


def _is_readable(order: ReanalysisRequest) -> ColumnElement[bool]:
    """Whether the image can be read, or a shadow's reading of it can be reported."""
    has_pixels = instance.c.pixels_removed_at.is_(None)
    by_release = select(reading.c.id).where(
        reading.c.instance_id == instance.c.id, reading.c.release == order.release
    )
    return has_pixels if order.is_shadow else or_(has_pixels, by_release.exists())


def _is_comparable(order: ReanalysisRequest) -> ColumnElement[bool]:
    """Whether another release has a current result for the study."""
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


def _unread(order: ReanalysisRequest, after: int, until: int) -> Select[Any]:
    """Studies of a range of rows with their unread images, and how many of those can be read."""
    is_readable = case((_is_readable(order), 1), else_=0)
    images = func.count().label("images")
    readable = func.sum(is_readable).label("readable")
    return (
        select(
            study.c.id,
            study.c.state,
            case((_is_comparable(order), 1), else_=0).label("is_comparable"),
            images,
            readable,
        )
        .join(instance, instance.c.study_instance_uid == study.c.study_instance_uid)
        .where(study.c.id > after, study.c.id <= until, _chosen(order), _is_unread(order))
        .group_by(study.c.id)
        .order_by(study.c.id)
    )


def _look(
    connection: Connection, order: ReanalysisRequest, after: int, until: int
) -> ScannedStudies:
    ids = list[int]()
    count = Count()
    for row in connection.execute(_unread(order, after, until)):
        found = _counted(row)
        count += found
        if found.studies:
            ids.append(row.id)
    return ScannedStudies(until, ids, count)


def _counted(row: Row[Any]) -> Count:
    """Count one study: it is read again, or left out for a reason."""
    found = Count(without_pixels=row.images - row.readable)
    if not row.readable:
        return found
    if row.state != StudyState.CLOSED:
        return replace(found, open_studies=1)
    if not row.is_comparable:
        return replace(found, incomparable=1)
    return replace(found, studies=1, images=row.readable)


def _begin(
    connection: Connection, order: ReanalysisRequest, ids: Sequence[int], now: float
) -> Count:
    """Open those studies of one part that have not changed since `look`.

    Locks in the order of `record`.
    """
    images = _locked_images(connection, order, ids)
    theirs = sorted(set(images.values()))
    if not theirs:
        return Count()
    known = set[int]() if order.is_shadow else _report_shadow(connection, order, theirs)
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


def _locked_images(
    connection: Connection, order: ReanalysisRequest, ids: Sequence[int]
) -> dict[int, str]:
    """Unread images of those studies that are still closed: row id to Study Instance UID."""
    uids = (
        connection.execute(select(study.c.study_instance_uid).where(study.c.id.in_(ids)))
        .scalars()
        .all()
    )
    _hold_images(connection, uids)
    unread = and_(
        _is_unread(order),
        _is_readable(order),
        instance.c.sop_instance_uid.in_(order.sop_instance_uids)
        if order.sop_instance_uids
        else true(),
    )
    query = (
        select(instance.c.id, instance.c.study_instance_uid)
        .join(study, study.c.study_instance_uid == instance.c.study_instance_uid)
        .where(
            study.c.id.in_(ids), study.c.state == StudyState.CLOSED, _is_comparable(order), unread
        )
        .order_by(instance.c.id)
    )
    return {row.id: row.study_instance_uid for row in connection.execute(query)}


def _hold_images(connection: Connection, uids: Sequence[str]) -> None:
    """Lock these images until the transaction ends (PostgreSQL).

    No other transaction opens readings of them by this release, or rejects them.
    """
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
    """Columns of a new reading, with the last priority: live images go first."""
    return {
        "instance_id": instance_id,
        "study_instance_uid": study_uid,
        "release": order.release,
        "is_shadow": order.is_shadow,
        "state": ReadingState.DUE,
        "priority": Priority.REANALYSIS,
        "due_at": now,
        "campaign_id": order.campaign_id,
    }


def _report_shadow(
    connection: Connection, order: ReanalysisRequest, uids: Sequence[str]
) -> set[int]:
    """Turn the release's shadow readings into reported ones, and return their image row ids.

    They are the campaign's, if one wants them: no live report follows from them.
    """
    name = order.release
    ours = and_(assignment.c.study_instance_uid.in_(uids), assignment.c.shadow == name)
    connection.execute(update(assignment).where(ours).values(shadow=None))
    of_shadow = and_(
        reading.c.study_instance_uid.in_(uids),
        reading.c.release == name,
        reading.c.is_shadow.is_(True),
    )
    locked = select(reading.c.id).where(of_shadow).order_by(reading.c.id).with_for_update()
    connection.execute(locked).all()
    values = {"is_shadow": False, "campaign_id": order.campaign_id}
    reported = update(reading).where(of_shadow).values(values)
    return set(connection.execute(reported.returning(reading.c.instance_id)).scalars().all())


def _forget_comparisons(connection: Connection, name: str, uids: Sequence[str]) -> None:
    """Delete the release's open comparisons: it is no shadow any more. Finished ones stay.

    Runs after the studies are locked, in the order of `record`.
    """
    of_shadow = and_(comparison.c.study_instance_uid.in_(uids), comparison.c.shadow == name)
    connection.execute(
        delete(comparison).where(of_shadow, comparison.c.state != ComparisonState.COMPARED)
    )


def _compared_with(
    connection: Connection, order: ReanalysisRequest, uids: Sequence[str]
) -> dict[str, str]:
    """For each study, in the order of locks, the release to compare with.

    A release of `peers`, else one of its alias, else the newest.
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
