"""Jobs of claimed rows: all data that the stage needs, read in the claiming transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, select

from hilum.domain import (
    DOCUMENT_KINDS,
    SR_KINDS,
    DeliveryJob,
    DeliveryState,
    Document,
    Instance,
    Job,
    Lease,
    Made,
    Priority,
    ReadingJob,
    ReportJob,
    StudyJob,
)
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.commitments import commitment_job
from hilum.store.queue.comparisons import comparison_job
from hilum.store.queue.complete import NEVER_SENT
from hilum.store.queue.hand_off import delivery_job
from hilum.store.schema import codec
from hilum.store.schema.tables import delivery, document, instance, reading, result, study

# Built once (see `queue/queues`).
_NAMED_INSTANCES = PreparedStatement(
    select(instance).where(instance.c.id.in_(bindparam("rows", expanding=True))), "rows"
)
_INSTANCES = PreparedStatement(
    select(instance)
    .where(instance.c.study_instance_uid.in_(bindparam("uids", expanding=True)))
    .order_by(instance.c.id),
    "uids",
)
# Without class activation maps: assembly does not need them, and they are the most of a reading.
_READINGS = PreparedStatement(
    select(*(column for column in reading.c if column is not reading.c.cam))
    .where(
        reading.c.study_instance_uid.in_(bindparam("uids", expanding=True)),
        reading.c.is_shadow.is_(False),
    )
    .order_by(reading.c.id),
    "uids",
)
_CURRENT_RESULTS = PreparedStatement(
    select(result)
    .where(
        result.c.study_instance_uid.in_(bindparam("uids", expanding=True)),
        result.c.is_current.is_(True),
    )
    .order_by(result.c.id),
    "uids",
)
_SPENT_DIGESTS = select(result.c.release, result.c.source_digest).where(
    result.c.study_instance_uid == bindparam("uid"), result.c.is_current.is_(False)
)
_STUDY = PreparedStatement(select(study).where(study.c.study_instance_uid == bindparam("uid")))
# Only the needed part of a result's content: all of it would be decoded.
_TO_DELIVER = PreparedStatement(
    select(
        document,
        result.c.study_instance_uid,
        result.c.release,
        result.c.revision,
        result.c.content["is_trained"].as_boolean().label("is_trained"),
        result.c.identifiers,
        result.c.is_current,
        *(
            study.c[name]
            for name in ("last_received_at", "quiet_until", "calling_ae_title", "peer_address")
        ),
    )
    .join(result, result.c.id == document.c.result_id)
    .join(study, study.c.study_instance_uid == result.c.study_instance_uid)
    .where(document.c.id == bindparam("row"))
)


def jobs_of(
    connection: Connection, stage: str, claimed: Sequence[tuple[PreparedRow, Lease]]
) -> list[Job]:
    """Jobs of rows that were claimed together, in their order.

    Common data of a batch is read once.
    """
    if stage in _JOBS:
        return [_JOBS[stage](connection, row, lease) for row, lease in claimed]
    return list(_WAVES[stage](connection, claimed)) if claimed else []


def _reading_jobs(
    connection: Connection, claimed: Sequence[tuple[PreparedRow, Lease]]
) -> Iterator[Job]:
    found = _NAMED_INSTANCES.all(
        connection, {"rows": list({row.instance_id for row, _ in claimed})}
    )
    images = {row.id: codec.instance_of(row) for row in found}
    for row, lease in claimed:
        yield ReadingJob(lease, row.release, Priority(row.priority), images[row.instance_id])


def _study_jobs(
    connection: Connection, claimed: Sequence[tuple[PreparedRow, Lease]]
) -> Iterator[Job]:
    uids = {"uids": [row.study_instance_uid for row, _ in claimed]}
    images, readings, current = (
        _by_study(query.all(connection, uids))
        for query in (_INSTANCES, _READINGS, _CURRENT_RESULTS)
    )
    for row, lease in claimed:
        uid = row.study_instance_uid
        yield StudyJob(
            lease=lease,
            study=codec.study_of(row),
            instances=tuple(map(codec.instance_of, images[uid])),
            readings=codec.readings_of(readings[uid], images[uid]),
            current_results=tuple(map(codec.result_of, current[uid])),
            superseded_digests=_spent(connection, uid) if current[uid] else {},
        )


def _by_study(rows: Iterable[PreparedRow]) -> defaultdict[str, list[PreparedRow]]:
    found = defaultdict[str, list[PreparedRow]](list)
    for row in rows:
        found[row.study_instance_uid].append(row)
    return found


def _spent(connection: Connection, study_uid: str) -> dict[str, frozenset[str]]:
    spent: dict[str, set[str]] = {}
    for release, digest in connection.execute(_SPENT_DIGESTS, {"uid": study_uid}):
        spent.setdefault(release, set()).add(digest)
    return {release: frozenset(digests) for release, digests in spent.items()}


def _report_job(connection: Connection, row: PreparedRow, lease: Lease) -> ReportJob:
    found = _STUDY.one(connection, {"uid": row.study_instance_uid})
    return ReportJob(
        lease=lease,
        result=codec.result_of(row),
        study=codec.study_of(found),
        instances=_instances(connection, row.study_instance_uid),
        predecessors=_predecessors(connection, row.supersedes_id),
        delivered_reports=_delivered_reports(connection, row.supersedes_id),
        holders=_holders(connection, row.supersedes_id),
    )


def _delivery_job(connection: Connection, row: PreparedRow, lease: Lease) -> DeliveryJob:
    found = _TO_DELIVER.one(connection, {"row": row.document_id})
    job = delivery_job(lease, row.destination, codec.document_of(found), found, found)
    return replace(job, is_current=found.is_current, delivered_at=row.delivered_at)


_WAVES: dict[str, Callable[[Connection, Sequence[tuple[PreparedRow, Lease]]], Iterable[Job]]] = {
    "analyse": _reading_jobs,
    "assemble": _study_jobs,
}
_JOBS: dict[str, Callable[[Connection, PreparedRow, Lease], Job]] = {
    "compare": comparison_job,
    "report": _report_job,
    "deliver": _delivery_job,
    "commit": commitment_job,
}


def _instances(connection: Connection, study_uid: str) -> tuple[Instance, ...]:
    """All images of a study. The caller decides about rejected ones."""
    return tuple(
        codec.instance_of(row) for row in _INSTANCES.all(connection, {"uids": [study_uid]})
    )


def _predecessors(connection: Connection, result_id: int | None) -> dict[str, Document]:
    """For each kind, the newest earlier document that a receiver may hold.

    A document that was never sent needs no successor.
    """
    found: dict[str, Document] = {}
    for ancestor in _ancestors(connection, result_id):
        for row in connection.execute(
            select(document).where(document.c.result_id == ancestor)
        ).all():
            if row.kind not in found and _may_be_held(connection, row.id):
                found[row.kind] = codec.document_of(row)
    return found


def _delivered_reports(connection: Connection, result_id: int | None) -> dict[str, Document]:
    """For each destination the newest earlier structured report that it may hold.

    The document that was sent there, of any class.
    """
    found: dict[str, Document] = {}
    for ancestor in _ancestors(connection, result_id):
        joined = document.join(delivery, delivery.c.document_id == document.c.id)
        query = select(document, delivery.c.destination).select_from(joined)
        wanted = query.where(
            document.c.result_id == ancestor, document.c.kind.in_(SR_KINDS)
        ).order_by(document.c.id.desc())
        for row in connection.execute(wanted).all():
            if row.destination not in found and _may_be_held(connection, row.id, row.destination):
                found[row.destination] = codec.document_of(row)
    return found


def _holders(connection: Connection, result_id: int | None) -> dict[str, frozenset[str]]:
    """For each kind made where it is taken, the destinations that may hold an earlier document.

    The bytes are large, and are not read.
    """
    found: dict[str, frozenset[str]] = {}
    taken = [kind.key for kind in DOCUMENT_KINDS.values() if kind.made is Made.WHERE_TAKEN]
    for ancestor in _ancestors(connection, result_id):
        joined = document.join(delivery, delivery.c.document_id == document.c.id)
        query = select(document.c.id, document.c.kind, delivery.c.destination).select_from(joined)
        rows = connection.execute(
            query.where(document.c.result_id == ancestor, document.c.kind.in_(taken))
        ).all()
        for row in rows:
            known = found.get(row.kind, frozenset())
            if row.destination not in known and _may_be_held(connection, row.id, row.destination):
                found[row.kind] = known | {row.destination}
    return found


def _ancestors(connection: Connection, result_id: int | None) -> Iterator[int]:
    while result_id is not None:
        yield result_id
        result_id = connection.execute(
            select(result.c.supersedes_id).where(result.c.id == result_id)
        ).scalar_one()


def _may_be_held(connection: Connection, document_id: int, name: str | None = None) -> bool:
    """A condition: the document was delivered or tried, or it is for REST only.

    `name`: at this destination alone.
    """
    columns = (delivery.c.state, delivery.c.attempts, delivery.c.reason, delivery.c.delivered_at)
    query = select(*columns).where(delivery.c.document_id == document_id)
    rows = connection.execute(
        query if name is None else query.where(delivery.c.destination == name)
    ).all()
    return not rows or any(
        row.state in (DeliveryState.DELIVERED, DeliveryState.LEASED)
        or row.delivered_at is not None
        or (row.attempts > 0 and row.reason not in NEVER_SENT)
        for row in rows
    )
