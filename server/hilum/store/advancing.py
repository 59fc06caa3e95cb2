"""`advance`: what a stage decided becomes rows, in the same transaction as the end of its lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, insert, select, update

from hilum.domain import Advance, DeliveryJob, DeliveryState, Document, Job, Lease, NewDocument, Result, ResultState
from hilum.store import codec, comparing
from hilum.store.handing_on import Columns, HandingOn
from hilum.store.prepared import Prepared
from hilum.store.queues import Queue
from hilum.store.schema import WORK_TABLES, delivery, document, reading, result, study

# Statements are built once (see `queues`); an UPDATE sets the columns that its parameters name.
_HELD = {
    name: Prepared(update(table).where(table.c.id == bindparam("row"), table.c.lease_token == bindparam("token")))
    for name, table in WORK_TABLES.items()
}
# No study waits for a shadow's reading. In one order, or two that end readings of the same studies would wait for each other (PostgreSQL).
_WAITING_STUDIES = Prepared(
    select(reading.c.id.label("reading"), study.c.id.label("study"), study.c.open_readings)
    .join(study, study.c.study_instance_uid == reading.c.study_instance_uid)
    .where(reading.c.id.in_(bindparam("ended", expanding=True)), reading.c.is_shadow.is_(False))
    .order_by(study.c.study_instance_uid)
    .with_for_update(of=study),
    "ended",
)
# It may be claimed from now on: not since it was opened, which over an archive is days ago.
_IS_LATE = and_(bindparam("left") == 0, study.c.due_at < bindparam("now"))
_CLOSE_READINGS = Prepared(
    update(study)
    .where(study.c.id == bindparam("row"))
    .values(open_readings=bindparam("left"), due_at=case((_IS_LATE, bindparam("now")), else_=study.c.due_at))
)
_EARLIER_RESULTS = Prepared(
    select(result.c.id, result.c.source_digest, result.c.is_current, result.c.state).where(
        result.c.study_instance_uid == bindparam("uid"), result.c.release == bindparam("by")
    )
)
_LANE_BY_ANY = (
    select(func.min(reading.c.lane))
    .where(reading.c.study_instance_uid == bindparam("uid"), reading.c.is_shadow.is_(False))
    .scalar_subquery()
)
_LANE_BY_RELEASE = (
    select(func.min(reading.c.lane))
    .where(reading.c.study_instance_uid == bindparam("uid"), reading.c.release == bindparam("by"), reading.c.is_shadow.is_(False))
    .scalar_subquery()
)
# The study's; but a release that has read it later than others, over an archive, does not hold up with its reports what is live.
_LANE_OF_RESULT = Prepared(
    select(case((_LANE_BY_RELEASE > _LANE_BY_ANY, _LANE_BY_RELEASE), else_=study.c.lane)).where(
        study.c.study_instance_uid == bindparam("uid")
    )
)
_RESULT_OF_DELIVERY = (
    select(document.c.result_id).join(delivery, delivery.c.document_id == document.c.id).where(delivery.c.id == bindparam("row"))
)
_RESULT_LOCKED = Prepared(select(result.c.lane, result.c.is_current).where(result.c.id == bindparam("row")).with_for_update())
_KNOWN_DOCUMENTS = select(document.c.kind, document.c.id).where(document.c.result_id == bindparam("of"))
_NEW_RESULT, _NEW_DOCUMENT, _NEW_DELIVERY = (Prepared(insert(table).returning(table.c.id)) for table in (result, document, delivery))
_NOTHING: Mapping[str, int] = {}
_SUPERSEDED = "superseded"
NEVER_SENT = ("class_ladder", "sop_class_refused")
"""Reasons of a delivery that was tried, where the receiver refused the SOP Class before a byte of the document was sent."""
_KNOWN_DELIVERY = select(delivery.c.id).where(delivery.c.document_id == bindparam("of"), delivery.c.destination == bindparam("to"))


def advance_row(connection: Connection, queue: Queue, lease: Lease, decided: Advance, following: HandingOn) -> bool:
    """Write one decision and what follows from it, but for `close_readings`. False: the lease is lost and nothing was written."""
    ended = {"reason": None, "detail": None, **decided.values, "state": decided.state, "finished_at": following.now}
    held = {"row": lease.row_id, "token": lease.token}
    if _HELD[queue.table.name].write(connection, {**ended, "lease_token": None, "leased_until": None, **held}) != 1:
        return False
    for item in decided.results:
        _insert_result(connection, item, following)
    if decided.documents:
        insert_documents = _insert_documents if queue.table is result else _insert_derived
        insert_documents(connection, lease.row_id, decided.documents, following)
    return True


def close_readings(connection: Connection, reading_ids: Sequence[int], now: float) -> bool:
    """One open reading fewer in each reading's study; whether a study waits for none any more. A shadow's last hastens its comparison."""
    if not reading_ids:
        return False
    waiting = _WAITING_STUDIES.all(connection, {"ended": reading_ids})
    ended, before = Counter(row.study for row in waiting), {row.study: row.open_readings for row in waiting}
    left = {row: before[row] - count for row, count in ended.items()}
    if left:
        _CLOSE_READINGS.write_each(connection, [{"row": row, "left": count, "now": now} for row, count in left.items()])
    if shadows := set(reading_ids).difference(row.reading for row in waiting):
        comparing.hasten(connection, shadows, now)
    return 0 in left.values()


def _insert_result(connection: Connection, new: Result, following: HandingOn) -> None:
    """A new current result; the one before is superseded, and what was not yet sent of it never will be (promise 5)."""
    earlier = _EARLIER_RESULTS.all(connection, {"uid": new.study_instance_uid, "by": new.release})
    if any(old.source_digest == new.source_digest for old in earlier):
        return  # the very same sources were reported already: the stored documents stand
    for old in earlier:
        if old.state == ResultState.SHADOW if new.is_shadow else old.is_current:
            _supersede(connection, old.id, following.now)
    begun = _as_shadow(following.now) if new.is_shadow else following.begin_result(new)
    (lane,) = _LANE_OF_RESULT.one(connection, {"uid": new.study_instance_uid, "by": new.release})
    values = {**codec.result_values(new), **begun, "is_current": not new.is_shadow, "lane": lane, "due_at": following.now}
    following.add_result(new, _inserted(connection, _NEW_RESULT, values), begun)


def _as_shadow(now: float) -> Columns:
    """It is compared, and gets no documents."""
    return {"state": ResultState.SHADOW, "finished_at": now}


def _supersede(connection: Connection, result_id: int, now: float) -> None:
    connection.execute(update(result).where(result.c.id == result_id).values(is_current=False))
    is_unreported = result.c.state.in_((ResultState.DUE, ResultState.LEASED, ResultState.FAILED, ResultState.SHADOW))
    ended = {"lease_token": None, "leased_until": None, "finished_at": now}
    connection.execute(update(result).where(result.c.id == result_id, is_unreported).values(state=ResultState.SUPERSEDED, **ended))
    documents = select(document.c.id).where(document.c.result_id == result_id)
    # Leased deliveries are left alone: they may be on the wire, and then they are sent.
    is_unsent = delivery.c.state.in_((DeliveryState.DUE, DeliveryState.DEAD))
    cancel(connection, and_(delivery.c.document_id.in_(documents), is_unsent), _SUPERSEDED, now)


def cancel_superseded(connection: Connection, chosen: ColumnElement[bool], now: float) -> None:
    """Of dead deliveries that a person wants to be tried again those of superseded results, which never will be. Their tries stay known."""
    old = select(document.c.id).join(result, result.c.id == document.c.result_id).where(result.c.is_current.is_(False))
    is_old = old.where(document.c.id == delivery.c.document_id).exists()
    cancel(connection, and_(chosen, delivery.c.state == DeliveryState.DEAD, is_old), _SUPERSEDED, now)


def cancel(connection: Connection, chosen: ColumnElement[bool], reason: str, now: float) -> int:
    """End these deliveries unsent; how many. Their tries stay known: where one was, the receiver may have the document."""
    # The reason of before goes: without a try, what was never sent stays known as that.
    tried = case((delivery.c.reason.in_(NEVER_SENT), 0), else_=delivery.c.attempts)
    ended = {"lease_token": None, "leased_until": None, "finished_at": now}
    cancelled = {"state": DeliveryState.CANCELLED, "reason": reason, "attempts": tried, **ended}
    return connection.execute(update(delivery).where(chosen).values(cancelled)).rowcount


def without_superseded(connection: Connection, jobs: Sequence[Job], now: float) -> list[Job]:
    """Of what was just claimed without deliveries of results that were superseded while another try had them. They end here, untried.

    Whatever ended that try, what was not sent of such a result never will be: its successor may be there already (promise 5).
    """
    stale = [job.lease for job in jobs if isinstance(job, DeliveryJob) and not job.is_current]
    ended = {"state": DeliveryState.CANCELLED, "reason": _SUPERSEDED, "lease_token": None, "leased_until": None, "finished_at": now}
    for lease in stale:
        held = {"row": lease.row_id, "token": lease.token}
        _HELD[delivery.name].write(connection, {**ended, "attempts": lease.attempts - 1, **held})
    return [job for job in jobs if job.lease not in stale]


def _insert_derived(connection: Connection, delivery_id: int, documents: Sequence[NewDocument], following: HandingOn) -> None:
    """Of a delivery: a derived document may be there already, for another destination. Then that one's bytes go here, too."""
    result_id = int(connection.execute(_RESULT_OF_DELIVERY, {"row": delivery_id}).scalar_one())
    known = {row.kind: row.id for row in connection.execute(_KNOWN_DOCUMENTS, {"of": result_id})}
    _insert_documents(connection, result_id, documents, following, known)


def _insert_documents(
    connection: Connection, result_id: int, documents: Sequence[NewDocument], following: HandingOn, known: Mapping[str, int] = _NOTHING
) -> None:
    """The bytes that will be sent, for ever the same, and a delivery for each destination.

    Of a result that has been superseded meanwhile nothing more is sent; its row is locked, so that it cannot be superseded unnoticed.
    """
    lane, is_current = _RESULT_LOCKED.one(connection, {"row": result_id})
    for new in documents:
        document_id = known.get(new.document.kind) or _store_document(connection, result_id, new.document, following.now)
        stored = replace(new.document, id=document_id, result_id=result_id)
        common = {"document_id": document_id, "lane": lane, "due_at": following.now}
        for name, begun in _beginnings(new, following, is_current=is_current).items():
            if new.document.kind in known and _is_there(connection, document_id, name):
                continue  # a document goes to a destination once
            row_id = _inserted(connection, _NEW_DELIVERY, {**common, **begun, "destination": name})
            following.add_delivery(stored, name, row_id, begun)


def _beginnings(new: NewDocument, following: HandingOn, *, is_current: bool) -> dict[str, Columns]:
    """For each destination, how its delivery begins. What is withheld has ended at once."""
    superseded = {} if is_current else dict.fromkeys(new.destinations, _SUPERSEDED)
    ended = {"state": DeliveryState.CANCELLED, "finished_at": following.now}
    return {
        **({name: following.begin_delivery(name) for name in new.destinations} if is_current else {}),
        **{name: {**ended, "reason": reason} for name, reason in {**superseded, **new.withheld}.items()},
    }


def _store_document(connection: Connection, result_id: int, item: Document, now: float) -> int:
    values = {
        "result_id": result_id,
        "kind": item.kind,
        "media_type": item.media_type,
        "sop_class_uid": item.sop_class_uid,
        "sop_instance_uid": item.sop_instance_uid,
        "series_instance_uid": item.series_instance_uid,
        "predecessor_uid": item.predecessor_uid,
        "content": item.content,
        "created_at": now,
    }
    return _inserted(connection, _NEW_DOCUMENT, values)


def _is_there(connection: Connection, document_id: int, name: str) -> bool:
    return connection.execute(_KNOWN_DELIVERY, {"of": document_id, "to": name}).first() is not None


def _inserted(connection: Connection, new: Prepared, values: Mapping[str, object]) -> int:
    """The id of the new row."""
    return int(new.one(connection, values).id)
