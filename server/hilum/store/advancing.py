"""`advance`: what a stage decided becomes rows, in the same transaction as the end of its lease."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select, update

from hilum.domain import Advance, DeliveryState, Document, Lease, NewDocument, Result, ResultState
from hilum.store import codec, comparing
from hilum.store.queues import Queue
from hilum.store.schema import WORK_TABLES, delivery, document, reading, result, study

# Statements are built once (see `queues`); an UPDATE sets the columns that its parameters name.
_HELD = {
    name: update(table).where(table.c.id == bindparam("row"), table.c.lease_token == bindparam("token"))
    for name, table in WORK_TABLES.items()
}
# No study waits for a shadow's reading.
_WAITED_FOR = select(reading.c.study_instance_uid).where(reading.c.id == bindparam("row"), reading.c.is_shadow.is_(False)).scalar_subquery()
_CLOSE_READING = (
    update(study)
    .where(study.c.study_instance_uid == _WAITED_FOR)
    .values(open_readings=study.c.open_readings - 1)
    .returning(study.c.open_readings)
)
_EARLIER_RESULTS = select(result.c.id, result.c.source_digest, result.c.is_current, result.c.state).where(
    result.c.study_instance_uid == bindparam("uid"), result.c.release == bindparam("by")
)
_LANE_OF_STUDY = select(study.c.lane).where(study.c.study_instance_uid == bindparam("uid"))
_RESULT_OF_DELIVERY = (
    select(document.c.result_id).join(delivery, delivery.c.document_id == document.c.id).where(delivery.c.id == bindparam("row"))
)
_RESULT_LOCKED = select(result.c.lane, result.c.is_current).where(result.c.id == bindparam("row")).with_for_update()
_KNOWN_DOCUMENTS = select(document.c.kind, document.c.id).where(document.c.result_id == bindparam("of"))
_NEW_RESULT, _NEW_DELIVERY = insert(result), insert(delivery)
_NEW_DOCUMENT = insert(document).returning(document.c.id)
_KNOWN_DELIVERY = select(delivery.c.id).where(delivery.c.document_id == bindparam("of"), delivery.c.destination == bindparam("to"))


def advance_row(connection: Connection, queue: Queue, lease: Lease, decided: Advance, now: float) -> bool:
    """Write one decision and what follows from it, but for `close_readings`. False: the lease is lost and nothing was written."""
    ended = {"reason": None, "detail": None, **decided.values, "state": decided.state, "finished_at": now}
    held = {"row": lease.row_id, "token": lease.token}
    if connection.execute(_HELD[queue.table.name], {**ended, "lease_token": None, "leased_until": None, **held}).rowcount != 1:
        return False
    for item in decided.results:
        _insert_result(connection, item, now)
    if decided.documents:
        of_result = lease.row_id if queue.table is result else _result_of_delivery(connection, lease.row_id)
        _insert_documents(connection, of_result, decided.documents, now)
    return True


def close_readings(connection: Connection, reading_ids: Sequence[int], now: float) -> bool:
    """One open reading fewer in each reading's study; whether a study waits for none any more. A shadow's last hastens its comparison."""
    left = [_close_reading(connection, reading_id, now) for reading_id in reading_ids]
    return 0 in left


def _close_reading(connection: Connection, reading_id: int, now: float) -> int | None:
    left = connection.execute(_CLOSE_READING, {"row": reading_id}).scalar_one_or_none()
    if left is None:
        comparing.hasten(connection, reading_id, now)
    return left


def _insert_result(connection: Connection, new: Result, now: float) -> None:
    """A new current result; the one before is superseded, and what was not yet sent of it never will be (promise 5)."""
    earlier = connection.execute(_EARLIER_RESULTS, {"uid": new.study_instance_uid, "by": new.release}).all()
    if any(old.source_digest == new.source_digest for old in earlier):
        return  # the very same sources were reported already: the stored documents stand
    lane = connection.execute(_LANE_OF_STUDY, {"uid": new.study_instance_uid}).scalar_one()
    for old in earlier:
        if old.state == ResultState.SHADOW if new.is_shadow else old.is_current:
            _supersede(connection, old.id, now)
    state = {"state": ResultState.DUE, "is_current": True}
    if new.is_shadow:
        state = {"state": ResultState.SHADOW, "is_current": False, "finished_at": now}
    connection.execute(_NEW_RESULT, {**codec.result_values(new), **state, "lane": lane, "due_at": now})


def _supersede(connection: Connection, result_id: int, now: float) -> None:
    connection.execute(update(result).where(result.c.id == result_id).values(is_current=False))
    is_unreported = result.c.state.in_((ResultState.DUE, ResultState.LEASED, ResultState.FAILED, ResultState.SHADOW))
    ended = {"lease_token": None, "leased_until": None, "finished_at": now}
    connection.execute(update(result).where(result.c.id == result_id, is_unreported).values(state=ResultState.SUPERSEDED, **ended))
    documents = select(document.c.id).where(document.c.result_id == result_id)
    # Leased deliveries are left alone: they may be on the wire, and then they are sent.
    is_unsent = delivery.c.state.in_((DeliveryState.DUE, DeliveryState.DEAD))
    cancelled = {"state": DeliveryState.CANCELLED, "reason": "superseded", **ended}
    connection.execute(update(delivery).where(delivery.c.document_id.in_(documents), is_unsent).values(cancelled))


def _result_of_delivery(connection: Connection, delivery_id: int) -> int:
    return int(connection.execute(_RESULT_OF_DELIVERY, {"row": delivery_id}).scalar_one())


def _insert_documents(connection: Connection, result_id: int, documents: Sequence[NewDocument], now: float) -> None:
    """The bytes that will be sent, for ever the same, and a delivery for each destination.

    Of a result that has been superseded meanwhile nothing more is sent; its row is locked, so that it cannot be superseded unnoticed.
    """
    lane, is_current = connection.execute(_RESULT_LOCKED, {"row": result_id}).one()
    known = {row.kind: row.id for row in connection.execute(_KNOWN_DOCUMENTS, {"of": result_id})}
    for new in documents:
        # A derived document may be there already, for another destination: then that one's bytes go here, too.
        document_id = known.get(new.document.kind) or _store_document(connection, result_id, new.document, now)
        insert_delivery = _insert_missing_delivery if new.document.kind in known else _insert_delivery
        common = {"document_id": document_id, "lane": lane, "due_at": now}
        withheld = {} if is_current else dict.fromkeys(new.destinations, "superseded")
        for name in new.destinations if is_current else ():
            insert_delivery(connection, {**common, "destination": name, "state": DeliveryState.DUE})
        for name, reason in {**withheld, **new.withheld}.items():
            ended = {"state": DeliveryState.CANCELLED, "reason": reason, "finished_at": now}
            insert_delivery(connection, {**common, "destination": name, **ended})


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
    return int(connection.execute(_NEW_DOCUMENT, values).scalar_one())


def _insert_delivery(connection: Connection, values: dict[str, object]) -> None:
    connection.execute(_NEW_DELIVERY, values)


def _insert_missing_delivery(connection: Connection, values: dict[str, object]) -> None:
    """A document goes to a destination once: what is there already stands."""
    if connection.execute(_KNOWN_DELIVERY, {"of": values["document_id"], "to": values["destination"]}).first() is None:
        _insert_delivery(connection, values)
