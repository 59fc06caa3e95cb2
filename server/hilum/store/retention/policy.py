"""Retention: pixels leave the archive when their study is finished.

Rows and documents stay. Of an image's header the row keeps the identifying part (`row_header`). An
image may go when its study is closed, no reading is open, every current result has its documents,
and each of their deliveries has ended as delivered or cancelled. A dead delivery needs a person, so
it keeps the pixels. Old rows are deleted by `history`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from hilum.domain import DeliveryState, Priority, ReadingState, ResultState, StudyState
from hilum.store.archive.archive import Archive
from hilum.store.database.engines import begin_part, open_engine, open_reader, sync_of
from hilum.store.queue import reopen
from hilum.store.queue.clock_recovery import SKEW_SECONDS
from hilum.store.retention import deletions, history, rate
from hilum.store.retention.deletions import Removed
from hilum.store.retention.rate import Hour
from hilum.store.schema import row_header
from hilum.store.schema.tables import (
    delivery,
    document,
    installation,
    instance,
    reading,
    result,
    study,
)

_OWNER = "retention_owner"
_BY_AGE = "age"
_LOOKED_AT = 1000  # images of one look; of their studies, the one delivered first is released first
_PASSED_BY = 5000  # images of one look at most that have to stay
_TOGETHER = 8  # studies of one transaction: others wait for the ledger meanwhile, 1 ms for each
# Conditions on the results, readings and deliveries of a study.
CURRENT = and_(
    result.c.study_instance_uid == study.c.study_instance_uid, result.c.is_current.is_(True)
)
_OPEN_READING = and_(
    reading.c.study_instance_uid == study.c.study_instance_uid,
    reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED)),
)
_WAITING = delivery.c.state.in_((DeliveryState.DUE, DeliveryState.LEASED, DeliveryState.DEAD))
SENT = result.join(document, document.c.result_id == result.c.id).join(
    delivery, delivery.c.document_id == document.c.id
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The pixels that may go: of these priorities, of studies finished before this moment.

    `cause`: for the metrics. `promised_before`: images that storage commitment promised before it
    may go, too; None: no promised image may go. `called_ae_titles`: only images that came to one
    of them; empty: all.
    """

    priorities: Collection[Priority]
    finished_before: float
    cause: str
    promised_before: float | None = None
    called_ae_titles: Collection[str] = ()

    @property
    def is_free(self) -> ColumnElement[bool]:
        """A condition on an image: it came to one of the titles, and no promise keeps it."""
        unpromised: ColumnElement[bool] = instance.c.committed_at.is_(None)
        if self.promised_before is not None:
            unpromised = or_(unpromised, instance.c.committed_at < self.promised_before)
        if not self.called_ae_titles:
            return unpromised
        return and_(unpromised, instance.c.called_ae_title.in_(self.called_ae_titles))


@dataclass(frozen=True, slots=True)
class Share:
    """The most that may leave by age within an hour: a share of the images, or a number."""

    share: float
    images: int


@dataclass(slots=True)
class RetentionScan:
    """The position of a walk along the images: receipt and row of the last one.

    None: before the first. Without it, images that are to stay would be gone through at each look.
    """

    after: tuple[float, int] | None = None


class RetentionPolicy:
    """Retention of one installation. Every verb is safe to repeat, and to run twice at once."""

    def __init__(
        self,
        url: str,
        archive: Archive,
        clock: Callable[[], float] = time.time,
        hourly: Share | None = None,
    ) -> None:
        """`hourly` None: the deletions of an hour have no bound."""
        self._archive = archive
        self._clock = clock
        self._hourly = hourly
        self._engine = open_engine(url, is_synced=False)
        self._reader = open_reader(url)
        self._sync = sync_of(url)
        self.hour = Hour(0.0)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def hold(self, owner: str, seconds: float) -> bool:
        """Lease retention for so long: one process of all hosts does this work."""
        now = self._clock()
        key = installation.c.key == _OWNER
        value = json.dumps({"owner": owner, "until": now + seconds})
        try:
            with self._engine.begin() as connection:
                held = connection.execute(
                    select(installation.c.value).where(key).with_for_update()
                ).scalar_one_or_none()
                if held is None:
                    connection.execute(insert(installation).values(key=_OWNER, value=value))
                    return True
                if _is_anothers(json.loads(held), owner, now, seconds):
                    return False
                connection.execute(update(installation).where(key).values(value=value))
                return True
        except IntegrityError:  # two processes began at once
            return False

    def release(
        self, rule: Rule, bytes_wanted: int | None = None, walk: RetentionScan | None = None
    ) -> int:
        """Mark pixels as removed, oldest first, at most one batch; return their bytes.

        Their files go with the next `remove_files`. `bytes_wanted`: stop when so many will be free.
        `walk`: go on from there, with a bound: 0 need not mean that there are none.
        """
        with self._reader.connect() as connection:
            self.hour = rate.read(connection, self._clock())
            if self._is_spent(rule):
                return 0
            found = _in_order(
                _candidates(connection, rule, walk or RetentionScan(), _PASSED_BY if walk else None)
            )
            wanted = self._bound(connection, bytes_wanted) if found else 0
        freed = 0
        for start in range(0, len(found), _TOGETHER):
            if (wanted is not None and freed >= wanted) or self._is_spent(rule):
                break
            together = found[start : start + _TOGETHER]
            freed += self._release_studies(
                together, rule, None if wanted is None else wanted - freed
            )
        return freed

    def release_of(self, study_uids: Collection[str], rule: Rule) -> int:
        """Mark pixels of these studies as removed, where they may go; return their bytes."""
        with self._reader.connect() as connection:
            query = select(study.c.id).where(study.c.study_instance_uid.in_(study_uids))
            found = sorted(connection.execute(query).scalars())
        starts = range(0, len(found), _TOGETHER)
        return sum(
            self._release_studies(found[start : start + _TOGETHER], rule, None) for start in starts
        )

    def _release_studies(self, study_ids: list[int], rule: Rule, bytes_wanted: int | None) -> int:
        freed = 0
        with begin_part(self._engine) as connection:
            lock_studies(connection, study_ids)
            for study_id in study_ids:
                if (bytes_wanted is not None and freed >= bytes_wanted) or self._is_spent(rule):
                    break
                images, size_bytes = _release_study(connection, study_id, rule, self._clock())
                self.hour = self.hour.with_left(rule.cause, images, size_bytes)
                freed += size_bytes
            if freed and self._hourly is not None:
                rate.write(connection, self.hour)
        return freed

    def shorten_headers(self) -> int:
        """Shorten headers of an earlier version, at most one batch; return the number of rows.

        0: all rows have been looked at.
        """
        with begin_part(self._engine) as connection:
            return row_header.shorten_some(connection)

    def _bound(self, connection: Connection, bytes_wanted: int | None) -> int | None:
        """The number of the wanted bytes that may still leave in this hour.

        None: images are counted, not bytes.
        """
        if self._hourly is None:
            return bytes_wanted
        if bytes_wanted is None:
            self.hour = rate.with_share(
                connection, self.hour, self._hourly.share, self._hourly.images
            )
            return None
        self.hour = rate.with_missing(self.hour, bytes_wanted)
        return min(bytes_wanted, rate.pressure_left(connection, self.hour))

    def _is_spent(self, rule: Rule) -> bool:
        return self._hourly is not None and rule.cause == _BY_AGE and self.hour.is_spent

    def remove_files(self) -> list[Removed]:
        """Delete unnamed files that are due, at most one batch."""
        self._sync()  # leaves little for the sync inside, which others wait for
        return deletions.remove_due(self._engine, self._archive, self._clock(), self._sync)

    def forget(self, name: str, before: float) -> int:
        """Delete rows of `history.AGED_TABLES` from before that moment, and return their number.

        At most one batch.
        """
        with self._engine.begin() as connection:
            return history.forget(connection, name, before)


def _is_anothers(lease: Mapping[str, Any], owner: str, now: float, seconds: float) -> bool:
    """Whether another process holds the lease.

    A lease that ends too late counts as free: a clock was set back, and its owner may be gone.
    """
    return bool(lease["owner"] != owner and now < lease["until"] <= now + seconds + SKEW_SECONDS)


def _candidates(
    connection: Connection, rule: Rule, walk: RetentionScan, at_most: int | None
) -> list[Row[Any]]:
    """Studies whose pixels may go, in the order of their oldest images with pixels.

    The walk goes along the index of those images, and begins anew at its end. `at_most`: the number
    of images passed by that may not go.
    """
    found = list[Row[Any]]()
    passed = 0
    images = 0
    while images < _LOOKED_AT and (at_most is None or passed < at_most):
        looked_at = connection.execute(_next_images(rule, walk.after)).all()
        uids = Counter(row.study_instance_uid for row in looked_at if row.is_free)
        rows = _finished(connection, rule, uids)
        found += rows
        going = sum(uids[row.study_instance_uid] for row in rows)
        images += going
        passed += len(looked_at) - going
        is_last = len(looked_at) < _LOOKED_AT
        walk.after = None if is_last else (looked_at[-1].received_at, looked_at[-1].id)
        if is_last:
            break
    return found


def _finished(connection: Connection, rule: Rule, uids: Iterable[str]) -> Sequence[Row[Any]]:
    """Those of these studies whose pixels may go, with the moment at which they were finished."""
    query = select(study.c.id, study.c.study_instance_uid, finished_at().label("finished_at"))
    return connection.execute(
        query.where(study.c.study_instance_uid.in_(uids), *_may_go(rule))
    ).all()


def _next_images(rule: Rule, after: tuple[float, int] | None) -> Select[Any]:
    key = (instance.c.received_at, instance.c.id)
    query = (
        select(*key, instance.c.study_instance_uid, rule.is_free.label("is_free"))
        .order_by(*key)
        .limit(_LOOKED_AT)
    )
    query = query.where(
        instance.c.pixels_removed_at.is_(None), instance.c.received_at < rule.finished_before
    )
    return (
        query
        if after is None
        else query.where(tuple_(*key) > after, instance.c.received_at >= after[0])
    )


def _in_order(rows: Collection[Row[Any]]) -> list[int]:
    """Row ids of studies, the one that was finished first at the front."""
    finished = {row.id: row.finished_at for row in rows}
    return sorted(finished, key=lambda study_id: (finished[study_id], study_id))


def lock_studies(connection: Connection, study_ids: Sequence[int]) -> None:
    """Lock studies: no image of theirs comes unseen until the transaction ends.

    Images first, as in `record`, which opens a study again (PostgreSQL).
    """
    if connection.dialect.name == "postgresql":
        uids = (
            connection.execute(select(study.c.study_instance_uid).where(study.c.id.in_(study_ids)))
            .scalars()
            .all()
        )
        images = select(instance.c.id).where(instance.c.study_instance_uid.in_(uids))
        connection.execute(images.order_by(instance.c.sop_instance_uid).with_for_update()).all()
        reopen.lock(connection, study.c.id.in_(study_ids))


def _release_study(
    connection: Connection, study_id: int, rule: Rule, now: float
) -> tuple[int, int]:
    """Release all pixels of one locked study, if they still may go.

    Returns the number of images, and their bytes.
    """
    row = connection.execute(
        select(study.c.study_instance_uid).where(study.c.id == study_id, *_may_go(rule))
    ).first()
    if row is None:
        return 0, 0
    images = _images_to_release(connection, row.study_instance_uid, rule)
    for image in images:
        _release_image(connection, image, rule.cause, now)
    return len(images), sum(image.size_bytes for image in images)


def _images_to_release(connection: Connection, uid: str, rule: Rule) -> Sequence[Row[Any]]:
    kept = and_(
        instance.c.study_instance_uid == uid,
        instance.c.pixels_removed_at.is_(None),
        instance.c.received_at < rule.finished_before,
        rule.is_free,
    )
    columns: Sequence[Column[Any]] = (
        instance.c.id,
        instance.c.path,
        instance.c.size_bytes,
        instance.c.header,
        instance.c.transfer_syntax_uid,
    )
    return connection.execute(select(*columns).where(kept)).all()


def _release_image(connection: Connection, image: Row[Any], cause: str, now: float) -> None:
    values = {
        "pixels_removed_at": now,
        "header": row_header.identifying(image.header, image.transfer_syntax_uid),
    }
    connection.execute(update(instance).where(instance.c.id == image.id).values(values))
    deletions.expire(connection, image.path, cause, now, image.id)


def _may_go(rule: Rule) -> list[ColumnElement[bool]]:
    """Conditions on a study."""
    return [
        study.c.state == StudyState.CLOSED,
        study.c.open_readings == 0,
        (
            study.c.priority.in_([priority.value for priority in rule.priorities])
            if len(rule.priorities) < len(Priority)
            else true()
        ),
        select(result.c.id).where(CURRENT).exists(),
        ~select(result.c.id).where(CURRENT, result.c.state != ResultState.REPORTED).exists(),
        ~select(reading.c.id).where(_OPEN_READING).exists(),
        ~select(delivery.c.id).select_from(SENT).where(CURRENT, _WAITING).exists(),
        finished_at() < rule.finished_before,
    ]


def finished_at() -> ColumnElement[float]:
    """The moment of the last delivery of the current results.

    Without deliveries, the moment of the last result.
    """
    delivered = (
        select(func.max(delivery.c.finished_at)).select_from(SENT).where(CURRENT).scalar_subquery()
    )
    written = select(func.max(result.c.finished_at)).where(CURRENT).scalar_subquery()
    return case((func.coalesce(delivered, 0.0) > written, delivered), else_=written)
