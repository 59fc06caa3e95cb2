"""Everything the ledger knows about one study.

Patient data is not in its columns, so it is not in these answers either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, literal, select

from hilum.domain import DeliveryState, ReportState, ResultState, StudyState, WorkState
from hilum.store.queries.report_states import report_state
from hilum.store.queries.studies import Item, study_item
from hilum.store.schema.tables import (
    MAXIMUM_ROW_ID,
    comparison,
    delivery,
    document,
    instance,
    reading,
    result,
    study,
)

_INSTANCE = (
    "sop_instance_uid",
    "sop_class_uid",
    "series_instance_uid",
    "transfer_syntax_uid",
    "size_bytes",
    "received_at",
    "header_revision",
)
_REMOVAL = ("is_removed", "removal_reason", "pixels_removed_at")
_READING = (
    "release",
    "is_shadow",
    "state",
    "reason",
    "detail",
    "attempts",
    "view",
    "logits",
    "member_logits",
    "precision",
    "preprocessing_version",
    "timings",
    "finished_at",
)
_DOCUMENT = (
    "id",
    "result_id",
    "kind",
    "media_type",
    "sop_class_uid",
    "sop_instance_uid",
    "series_instance_uid",
    "predecessor_uid",
    "created_at",
)
_DELIVERY = (
    "id",
    "destination",
    "state",
    "reason",
    "detail",
    "attempts",
    "requeued_at",
    "commitment",
    "commitment_at",
)
_DUE = literal(WorkState.DUE, literal_execute=True)  # the partial index has this literal


def exists(connection: Connection, study_instance_uid: str) -> bool:
    """True if the study was ever recorded."""
    return (
        connection.execute(
            select(study.c.id).where(study.c.study_instance_uid == study_instance_uid)
        ).first()
        is not None
    )


def study_of(connection: Connection, sop_instance_uid: str) -> str | None:
    """Study Instance UID of an image, or of a document of ours; both are looked up by index."""
    image = select(instance.c.study_instance_uid).where(
        instance.c.sop_instance_uid == sop_instance_uid
    )
    paper = select(result.c.study_instance_uid).join(document, document.c.result_id == result.c.id)
    queries = (image, paper.where(document.c.sop_instance_uid == sop_instance_uid))
    found = (connection.execute(query).scalar_one_or_none() for query in queries)
    return next((uid for uid in found if uid is not None), None)


def detail(connection: Connection, study_instance_uid: str) -> Item | None:
    """A study with its images, readings, results, documents, deliveries and times.

    Superseded results are included.
    """
    row = connection.execute(
        select(study).where(study.c.study_instance_uid == study_instance_uid)
    ).first()
    if row is None:
        return None
    images = _images(connection, study_instance_uid)
    results, of_shadows = _parted(
        _results(connection, study_instance_uid), _shadows(connection, study_instance_uid)
    )
    closed = {
        "detail": row.detail,
        "attempts": row.attempts,
        "closed_at": row.finished_at if row.state == StudyState.CLOSED else None,
    }
    said = {"images": images, "results": results, "shadow_results": of_shadows}
    return {
        **study_item(row),
        **closed,
        **said,
        "report_state": _report_state(row.state, results),
        "timing": _timing(row, images, results),
    }


def _shadows(connection: Connection, uid: str) -> set[str]:
    query = select(comparison.c.shadow).where(comparison.c.study_instance_uid == uid)
    return set(connection.execute(query).scalars())


def _parted(results: Iterable[Item], shadows: Container[str]) -> tuple[list[Item], list[Item]]:
    """Results of reported releases, then the current ones of shadows."""
    reported = list[Item]()
    of_shadows = list[Item]()
    for item in results:
        if item["release"] not in shadows:
            reported.append(item)
        elif item["state"] == ResultState.SHADOW:
            of_shadows.append(item)
    return reported, of_shadows


def _report_state(state: str, results: Iterable[Item]) -> ReportState:
    current = [item for item in results if item["is_current"]]
    ways = [
        way["state"]
        for item in current
        for paper in item["documents"]
        for way in paper["deliveries"]
    ]
    return report_state(state, [item["state"] for item in current], ways)


def documents(connection: Connection, study_instance_uid: str) -> list[Item]:
    """All documents of a study with their deliveries, without bytes, oldest first."""
    sent = _deliveries(connection, study_instance_uid)
    columns = [document.c[name] for name in _DOCUMENT]
    query = select(*columns, func.length(document.c.content).label("size_bytes")).join_from(
        document, result
    )
    rows = connection.execute(
        query.where(result.c.study_instance_uid == study_instance_uid).order_by(document.c.id)
    )
    return [{**row._asdict(), "deliveries": sent[row.id]} for row in rows]


def document_bytes(connection: Connection, key: int | str) -> Item | None:
    """One document with its `content` and its study; None also for one that was erased."""
    if isinstance(key, int) and key > MAXIMUM_ROW_ID:
        return None
    condition = document.c.id == key if isinstance(key, int) else document.c.sop_instance_uid == key
    joined = select(document, result.c.study_instance_uid).join(
        result, result.c.id == document.c.result_id
    )
    row = connection.execute(joined.where(condition)).first()
    return None if row is None or not row.content else row._asdict()


def _pick(row: Row[Any], names: Iterable[str]) -> Item:
    values = row._asdict()
    return {name: values[name] for name in names}


def _images(connection: Connection, uid: str) -> list[Item]:
    """Images in the order of their arrival, each with one reading a release."""
    readings = _readings(connection, uid)
    columns = [instance.c[name] for name in (*_INSTANCE, "calling_ae_title", *_REMOVAL)]
    rows = connection.execute(
        select(instance.c.id, *columns)
        .where(instance.c.study_instance_uid == uid)
        .order_by(instance.c.id)
    )
    return [
        {**_pick(row, (column.name for column in columns)), "readings": readings[row.id]}
        for row in rows
    ]


def _readings(connection: Connection, uid: str) -> dict[int, list[Item]]:
    """Readings by the image's row id."""
    found: dict[int, list[Item]] = defaultdict(list)
    columns = [reading.c[name] for name in _READING]
    for row in connection.execute(
        select(reading.c.instance_id, *columns)
        .where(reading.c.study_instance_uid == uid)
        .order_by(reading.c.id)
    ):
        found[row.instance_id].append(_pick(row, _READING))
    return found


def _results(connection: Connection, uid: str) -> list[Item]:
    """Results, newest first; `supersedes_id` links each to the one before."""
    by_result: dict[int, list[Item]] = defaultdict(list)
    for item in documents(connection, uid):
        by_result[item["result_id"]].append(item)
    rows = connection.execute(
        select(result).where(result.c.study_instance_uid == uid).order_by(result.c.id.desc())
    )
    return [{**_result_item(row), "documents": by_result[row.id]} for row in rows]


def _result_item(row: Row[Any]) -> Item:
    names = (
        "id",
        "release",
        "revision",
        "state",
        "outcome",
        "is_current",
        "supersedes_id",
        "created_at",
        "detail",
        "source_digest",
    )
    return {**_pick(row, names), "reason": row.outcome_reason, "failure": row.reason, **row.content}


def _deliveries(connection: Connection, uid: str) -> dict[int, list[Item]]:
    """Deliveries by document.

    `at`: when it ended; `next_try_at`: when it is due; `delivered_at`: when it was first accepted.
    """
    found: dict[int, list[Item]] = defaultdict(list)
    for row in connection.execute(_delivery_query(uid)).all():
        is_due = row.state == WorkState.DUE
        detail = row.detail or (_met_by_another(connection, row.destination) if is_due else None)
        first = row.delivered_at or (
            row.finished_at if row.state == DeliveryState.DELIVERED else None
        )
        times = {
            "at": row.finished_at,
            "next_try_at": row.due_at if is_due else None,
            "delivered_at": first,
        }
        found[row.document_id].append({**_pick(row, _DELIVERY), "detail": detail, **times})
    return found


def _met_by_another(connection: Connection, destination: str) -> str | None:
    """The error that an untried document waits for; None: there is none.

    While its destination is away, other documents probe it.
    """
    tried = and_(
        delivery.c.state == _DUE,
        delivery.c.destination == destination,
        delivery.c.detail.is_not(None),
    )
    query = (
        select(delivery.c.detail)
        .where(tried)
        .order_by(delivery.c.priority.desc(), delivery.c.due_at.desc())
        .limit(1)
    )
    met = connection.execute(query).scalar()
    return None if met is None else f"not tried yet; another document for {destination} met: {met}"


def _delivery_query(uid: str) -> Select[Any]:
    joined = delivery.join(document, document.c.id == delivery.c.document_id).join(
        result, result.c.id == document.c.result_id
    )
    return (
        select(delivery)
        .select_from(joined)
        .where(result.c.study_instance_uid == uid)
        .order_by(delivery.c.id)
    )


def _ended(images: list[Item]) -> Iterator[float]:
    """The end of each reading that the study waits for."""
    readings = (item for image in images for item in image["readings"] if not item["is_shadow"])
    yield from (item["finished_at"] for item in readings if item["finished_at"])


def _first_accepted(papers: Iterable[Item]) -> float | None:
    sent = (way["delivered_at"] for paper in papers for way in paper["deliveries"])
    return min((at for at in sent if at), default=None)


def _timing(row: Row[Any], images: list[Item], results: list[Item]) -> Item:
    """The time of each boundary of the current results; None where it is not passed (yet)."""
    current = [item for item in results if item["is_current"]]
    written = [paper for item in current for paper in item["documents"]]
    accepted = _first_accepted(written)
    is_after = accepted is not None and accepted >= row.last_received_at
    return {
        "received_first": row.first_received_at,
        "received_last": row.last_received_at,
        "quiet_until": row.quiet_until,
        "analysed": max(_ended(images), default=None),
        "result_stored": max((item["created_at"] for item in current), default=None),
        "documents_stored": max((paper["created_at"] for paper in written), default=None),
        "first_delivered": accepted,
        "last_image_to_delivered_seconds": accepted - row.last_received_at if is_after else None,
        "quiet_end_to_delivered_seconds": accepted - row.quiet_until if is_after else None,
    }
