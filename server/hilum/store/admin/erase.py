"""Erasure of a patient or a study.

Rows become tombstones without patient data, files are deleted, and unsent documents are never sent.
Each study is one transaction, which also writes down the files to delete. So a repetition finishes
an erasure that a crash has cut off.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, and_, case, delete, func, null, or_, select, update

from hilum.domain import (
    DOCUMENT_KINDS,
    JSON,
    ComparisonState,
    ConflictState,
    DeliveryState,
    ReadingState,
    ResultState,
    ServerReason,
    StudyState,
)
from hilum.store.admin import vacuum
from hilum.store.archive.archive import Archive
from hilum.store.campaigns.erase import erase as erase_from_campaigns
from hilum.store.database.engines import open_engine, open_reader, sync_of
from hilum.store.installation.salt import Tombstones, salt
from hilum.store.queue import commitments
from hilum.store.queue.asked_commitments import OPEN_COMMITMENTS
from hilum.store.queue.complete import NEVER_SENT
from hilum.store.retention import deletions
from hilum.store.retention.deletions import Removed
from hilum.store.schema.tables import (
    assignment,
    comparison,
    conflict,
    delivery,
    document,
    expired_file,
    former_header,
    instance,
    reading,
    rejection,
    result,
    study,
    workitem,
)

_BATCH = 500
_BEGINNING_BYTES = 64 << 10
_KEPT_OF_RESULT = ("is_trained", "is_calibrated", "preprocessing_version")
_NO_LEASE = {"lease_token": None, "leased_until": None, "detail": None}
# The rule by which a later report's predecessors are chosen (`queue/jobs`): a document that was
# refused for its SOP Class was not sent.
_WAS_TRIED = and_(delivery.c.attempts > 0, func.coalesce(delivery.c.reason, "").not_in(NEVER_SENT))
_HAS_IT = or_(delivery.c.state == DeliveryState.DELIVERED, delivery.c.delivered_at.is_not(None))
# A destination is not asked to keep a document that was erased here.
_UNLESS_OPEN = case(
    (delivery.c.commitment.in_(OPEN_COMMITMENTS), null()), else_=delivery.c.commitment
)
_MAY_BE_HELD = or_(_HAS_IT, delivery.c.state == DeliveryState.LEASED, _WAS_TRIED)
# The patient stands at the beginning of a Structured Report, and near it in JSON. The end of a
# document need not be read.
_BEGINNING = case(
    (document.c.media_type == JSON.media_type, document.c.content),
    else_=func.substr(document.c.content, 1, _BEGINNING_BYTES).label("content"),
).label("content")
_REPORTS = select(
    document.c.id,
    result.c.study_instance_uid,
    document.c.result_id,
    document.c.media_type,
    _BEGINNING,
).join(result, result.c.id == document.c.result_id)
_OPEN_DELIVERIES = (
    DeliveryState.DUE,
    DeliveryState.LEASED,
    DeliveryState.DEAD,
    DeliveryState.WITHHELD,
)


@dataclass(slots=True)
class Erased:
    """Counts of the rows of a patient or a study.

    `delivered`: documents that destinations have; only the destinations can delete those. `tried`:
    documents that destinations may have. Those are being sent now, or a try ended without an answer
    that rules it out.
    """

    studies: int = 0
    images: int = 0
    documents: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)


class Erasure:
    """Erases studies from the ledger at `url` and from the archive.

    Every verb is safe to repeat.
    """

    def __init__(self, url: str, archive: Archive, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._archive = archive
        self._clock = clock
        self._engine = open_engine(url)
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def headers(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield (Study Instance UID, Transfer Syntax UID, header) of every image.

        Rows are read some hundred at a time.
        """
        last = 0
        while rows := self._headers_after(last):
            yield from (
                (row.study_instance_uid, row.transfer_syntax_uid, row.header)
                for row in rows
                if row.header
            )
            last = rows[-1].id

    def _headers_after(self, last: int) -> list[Row[Any]]:
        columns = (
            instance.c.id,
            instance.c.study_instance_uid,
            instance.c.transfer_syntax_uid,
            instance.c.header,
        )
        with self._reader.connect() as connection:
            return list(
                connection.execute(
                    select(*columns)
                    .where(instance.c.id > last)
                    .order_by(instance.c.id)
                    .limit(_BATCH)
                )
            )

    def documents(self) -> Iterator[tuple[str, int, str, bytes]]:
        """Yield (Study Instance UID, result's row id, media type, content) of every report.

        Rows are read some hundred at a time.
        """
        last = 0
        while rows := self._documents_after(last):
            yield from (
                (row.study_instance_uid, row.result_id, row.media_type, row.content) for row in rows
            )
            last = rows[-1].id

    def _documents_after(self, last: int) -> list[Row[Any]]:
        naming = [kind.key for kind in DOCUMENT_KINDS.values() if kind.names_patient]
        is_report = and_(document.c.kind.in_(naming), func.length(document.c.content) > 0)
        query = _REPORTS.where(is_report, document.c.id > last)
        with self._reader.connect() as connection:
            return list(connection.execute(query.order_by(document.c.id).limit(_BATCH)))

    def left_files(self) -> list[str]:
        """Paths of files that no row names any more, and that are not deleted yet."""
        with self._reader.connect() as connection:
            return list(connection.execute(select(expired_file.c.path)).scalars())

    def hasten(self, path: str) -> None:
        """Let such a file be deleted now."""
        with self._engine.begin() as connection:
            values = {"due_at": self._clock(), "cause": "erased"}
            connection.execute(
                update(expired_file).where(expired_file.c.path == path).values(values)
            )

    def has_images(self, study_uid: str) -> bool:
        """Whether the study still has an image.

        A study without one has nothing left to keep: its images belong to another study now.
        """
        with self._reader.connect() as connection:
            return (
                connection.execute(
                    select(instance.c.id).where(instance.c.study_instance_uid == study_uid)
                ).first()
                is not None
            )

    def look(self, study_uid: str) -> Erased:
        """Count the rows that `erase_study` would erase."""
        with self._reader.connect() as connection:
            return _look(connection, study_uid)

    def look_at_results(self, result_ids: Collection[int]) -> Erased:
        """Count the rows that `erase_documents` would erase."""
        with self._reader.connect() as connection:
            return _found(connection, _of_results(connection, result_ids))

    def erase_study(self, study_uid: str) -> Erased:
        """Erase one study completely.

        A worker that holds one of its rows loses its lease, and its output is discarded.
        """
        with self._engine.begin() as connection:
            found = _look(connection, study_uid)
            if found.studies:
                _erase(connection, study_uid, self._clock())
            else:  # a rejection note came, and the study never did
                connection.execute(
                    delete(rejection).where(rejection.c.study_instance_uid == study_uid)
                )
            return found

    def erase_documents(self, result_ids: Collection[int]) -> Erased:
        """Erase the documents of some results of a study whose images are another patient's by now.

        The study's rows keep their names.
        """
        with self._engine.begin() as connection:
            ids = _of_results(connection, result_ids)
            found = _found(connection, ids)
            _empty_documents(connection, ids, {"content": b""}, self._clock())
            return found

    def erase_quarantined(self, path: str) -> None:
        """Erase an object in quarantine, and the description of its content in its row."""
        with self._engine.begin() as connection:
            for row in connection.execute(
                select(conflict.c.id).where(conflict.c.path == path)
            ).all():
                gone = {
                    "state": ConflictState.DISCARDED,
                    "digest": f"erased-{row.id}",
                    "sha256": None,
                    "size_bytes": 0,
                    "is_settled": True,
                }
                connection.execute(
                    update(conflict)
                    .where(conflict.c.id == row.id)
                    .values({**gone, "resolved_at": self._clock()})
                )
            deletions.expire(connection, path, "erased", self._clock(), None)

    def remove_files(self) -> list[Removed]:
        """Delete the files of erased rows, some at a time, and return them.

        Files that an unfinished erasure has left are deleted as well.
        """
        return deletions.remove_due(self._engine, self._archive, self._clock(), sync_of(self._url))

    def rewrite(self) -> bool:
        """Rewrite the database, so that its pages forget the old rows.

        False: others read meanwhile; call it again.
        """
        return vacuum.rewrite(self._url)


def _look(connection: Connection, study_uid: str) -> Erased:
    is_there = and_(study.c.study_instance_uid == study_uid, study.c.state != StudyState.ERASED)
    if connection.execute(select(study.c.id).where(is_there)).first() is None:
        return Erased()  # or a tombstone, which has no content
    images = connection.execute(
        select(instance.c.id).where(instance.c.study_instance_uid == study_uid)
    ).all()
    found = _found(connection, connection.execute(_documents(study_uid)).scalars().all())
    return replace(found, studies=1, images=len(images))


def _found(connection: Connection, document_ids: Sequence[int]) -> Erased:
    theirs = select(delivery.c.destination, _HAS_IT)
    rows = connection.execute(
        theirs.where(delivery.c.document_id.in_(document_ids), _MAY_BE_HELD)
    ).all()
    delivered, tried = (
        Counter(name for name, is_delivered in rows if is_delivered is wanted)
        for wanted in (True, False)
    )
    return Erased(documents=len(document_ids), delivered=delivered, tried=tried)


def _of_results(connection: Connection, result_ids: Collection[int]) -> Sequence[int]:
    """Row ids of documents of these results whose content is still there."""
    has_content = and_(document.c.result_id.in_(result_ids), func.length(document.c.content) > 0)
    return (
        connection.execute(select(document.c.id).where(has_content).order_by(document.c.id))
        .scalars()
        .all()
    )


def _documents(study_uid: str) -> Any:  # noqa: ANN401 - SQLAlchemy's own type names every column
    return (
        select(document.c.id)
        .join(result, result.c.id == document.c.result_id)
        .where(result.c.study_instance_uid == study_uid)
    )


def _erase(connection: Connection, study_uid: str, now: float) -> None:
    images, study_id = _lock(connection, study_uid)
    tombstones = Tombstones(salt(connection), study_id)
    stands_for = tombstones.of(study_uid)
    for image in images:
        _erase_image(connection, image, stands_for, tombstones, now)
    _erase_readings(connection, study_uid, stands_for, now)
    uids = [image.sop_instance_uid for image in images] + _document_uids(connection, study_uid)
    _erase_documents(connection, study_uid, now)
    _erase_results(connection, study_uid, stands_for, now)
    _erase_rejections(connection, study_uid, tombstones)
    _erase_comparisons(connection, study_uid, stands_for, now)
    erase_from_campaigns(connection, study_uid, stands_for, tombstones, now)
    connection.execute(
        update(workitem)
        .where(workitem.c.study_instance_uid == study_uid)
        .values(study_instance_uid=stands_for)
    )
    commitments.rename(connection, {uid: tombstones.of(uid) for uid in uids})
    _erase_study_row(connection, study_uid, stands_for, now)


def _lock(connection: Connection, study_uid: str) -> tuple[Sequence[Row[Any]], int]:
    """Lock a study in the order of locks of `record`: images, readings, then the study.

    Returns the images, and the study's row id.
    """
    of_study = instance.c.study_instance_uid == study_uid
    images = connection.execute(
        select(instance).where(of_study).order_by(instance.c.sop_instance_uid).with_for_update()
    ).all()
    readings = select(reading.c.id).where(reading.c.study_instance_uid == study_uid)
    connection.execute(readings.order_by(reading.c.id).with_for_update()).all()
    study_id = connection.execute(
        select(study.c.id).where(study.c.study_instance_uid == study_uid).with_for_update()
    ).scalar_one()
    return images, study_id


def _erase_study_row(connection: Connection, study_uid: str, stands_for: str, now: float) -> None:
    ended = {
        **_NO_LEASE,
        "state": StudyState.ERASED,
        "reason": ServerReason.ERASED,
        "open_readings": 0,
        "finished_at": now,
    }
    connection.execute(
        update(study)
        .where(study.c.study_instance_uid == study_uid)
        .values({**ended, "study_instance_uid": stands_for})
    )


def _erase_image(
    connection: Connection, image: Row[Any], stands_for: str, tombstones: Tombstones, now: float
) -> None:
    deletions.hasten(connection, image.id, now)
    if image.pixels_removed_at is None:
        deletions.expire(connection, image.path, "erased", now, image.id)
    stands_for_image = tombstones.of(image.sop_instance_uid)
    emptied: Mapping[str, Any] = {
        "sop_instance_uid": stands_for_image,
        "study_instance_uid": stands_for,
        "series_instance_uid": tombstones.of(image.series_instance_uid),
        "path": f"erased/{image.id}",
        "size_bytes": 0,
        "digest": "",
        "pixel_digest": "",
        "header": b"",
        "is_removed": True,
        "pixels_removed_at": image.pixels_removed_at or now,
    }
    connection.execute(update(instance).where(instance.c.id == image.id).values(emptied))
    connection.execute(delete(former_header).where(former_header.c.instance_id == image.id))
    _erase_conflicts(connection, image.sop_instance_uid, stands_for_image)


def _erase_conflicts(connection: Connection, sop_instance_uid: str, stands_for: str) -> None:
    held = conflict.c.sop_instance_uid == sop_instance_uid
    connection.execute(
        update(conflict).where(held).values(sop_instance_uid=stands_for, sha256=None)
    )


def _erase_readings(connection: Connection, study_uid: str, stands_for: str, now: float) -> None:
    emptied = dict.fromkeys(("logits", "member_logits", "cam", "view", "timings"), null())
    ended = {
        **_NO_LEASE,
        "state": ReadingState.ERASED,
        "reason": ServerReason.ERASED,
        "finished_at": now,
    }
    values = {**emptied, **ended, "study_instance_uid": stands_for}
    connection.execute(
        update(reading).where(reading.c.study_instance_uid == study_uid).values(values)
    )


def _document_uids(connection: Connection, study_uid: str) -> list[str]:
    query = select(document.c.sop_instance_uid).join(result, result.c.id == document.c.result_id)
    of_study = query.where(
        result.c.study_instance_uid == study_uid, document.c.sop_instance_uid.is_not(None)
    )
    return list(connection.execute(of_study).scalars())


def _erase_documents(connection: Connection, study_uid: str, now: float) -> None:
    emptied = {
        "content": b"",
        "sop_instance_uid": None,
        "series_instance_uid": None,
        "predecessor_uid": None,
    }
    _empty_documents(
        connection, connection.execute(_documents(study_uid)).scalars().all(), emptied, now
    )


def _empty_documents(
    connection: Connection, ids: Sequence[int], emptied: Mapping[str, Any], now: float
) -> None:
    connection.execute(update(document).where(document.c.id.in_(ids)).values(emptied))
    of_documents = delivery.c.document_id.in_(ids)
    connection.execute(
        update(delivery).where(of_documents).values(detail=None, commitment=_UNLESS_OPEN)
    )
    cancelled = {
        **_NO_LEASE,
        "state": DeliveryState.CANCELLED,
        "reason": ServerReason.ERASED,
        "finished_at": now,
    }
    connection.execute(
        update(delivery)
        .where(of_documents, delivery.c.state.in_(_OPEN_DELIVERIES))
        .values(cancelled)
    )


def _erase_results(connection: Connection, study_uid: str, stands_for: str, now: float) -> None:
    for row in connection.execute(
        select(result.c.id, result.c.content).where(result.c.study_instance_uid == study_uid)
    ).all():
        values = {
            **_emptied_result(row.id, row.content),
            "study_instance_uid": stands_for,
            "finished_at": now,
        }
        connection.execute(update(result).where(result.c.id == row.id).values(values))


def _emptied_result(row_id: int, content: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: content.get(name) for name in _KEPT_OF_RESULT}
    return {
        **_NO_LEASE,
        "state": ResultState.ERASED,
        "reason": ServerReason.ERASED,
        "source_digest": f"erased-{row_id}",
        "content": {**kept, "findings": [], "source_images": [], "timings": {}},
        "identifiers": {},
        "is_current": False,
    }


def _erase_comparisons(connection: Connection, study_uid: str, stands_for: str, now: float) -> None:
    connection.execute(delete(assignment).where(assignment.c.study_instance_uid == study_uid))
    ended = {
        **_NO_LEASE,
        "state": ComparisonState.ERASED,
        "reason": ServerReason.ERASED,
        "content": null(),
        "finished_at": now,
    }
    of_study = comparison.c.study_instance_uid == study_uid
    connection.execute(
        update(comparison).where(of_study).values({**ended, "study_instance_uid": stands_for})
    )


def _erase_rejections(connection: Connection, study_uid: str, tombstones: Tombstones) -> None:
    for row in connection.execute(
        select(rejection).where(rejection.c.study_instance_uid == study_uid)
    ).all():
        names = {
            "sop_instance_uid": tombstones.of(row.sop_instance_uid),
            "study_instance_uid": tombstones.of(study_uid),
        }
        connection.execute(
            update(rejection).where(rejection.c.id == row.id).values({**names, "note_uid": None})
        )
