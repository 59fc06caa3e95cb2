"""`advance`: what a stage decided becomes rows, in the same transaction as the end of its lease."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from hilum.domain import Advance, DeliveryState, Document, Lease, NewDocument, Result, ResultState
from hilum.store import codec
from hilum.store.claiming import Queue
from hilum.store.schema import delivery, document, reading, result, study


def advance_row(connection: Connection, queue: Queue, lease: Lease, decided: Advance, now: float) -> bool:
    """Write one decision and all that follows from it. False: the lease is lost and nothing was written."""
    table = queue.table
    values = {"reason": None, "detail": None, **decided.values, "state": decided.state}
    values |= {"finished_at": now, "lease_token": None, "leased_until": None}
    held = and_(table.c.id == lease.row_id, table.c.lease_token == lease.token)
    if connection.execute(update(table).where(held).values(values)).rowcount != 1:
        return False
    if table is reading:
        close_readings(connection, [lease.row_id])
    for item in decided.results:
        _insert_result(connection, item, now)
    if decided.documents:
        result_id = lease.row_id if table is result else _result_of_delivery(connection, lease.row_id)
        for new in decided.documents:
            _insert_document(connection, result_id, new, now)
    return True


def close_readings(connection: Connection, reading_ids: list[int]) -> None:
    """One open reading fewer in each reading's study: the last one makes the study claimable."""
    for reading_id in reading_ids:
        of_study = select(reading.c.study_instance_uid).where(reading.c.id == reading_id).scalar_subquery()
        connection.execute(update(study).where(study.c.study_instance_uid == of_study).values(open_readings=study.c.open_readings - 1))


def _insert_result(connection: Connection, new: Result, now: float) -> None:
    """A new current result; the one before is superseded, and what was not yet sent of it never will be (promise 5)."""
    same = and_(
        result.c.study_instance_uid == new.study_instance_uid, result.c.release == new.release, result.c.source_digest == new.source_digest
    )
    if connection.execute(select(result.c.id).where(same)).first() is not None:
        return  # the very same sources were reported already: the stored documents stand
    lane = connection.execute(select(study.c.lane).where(study.c.study_instance_uid == new.study_instance_uid)).scalar_one()
    for old in connection.execute(select(result.c.id).where(_current(new))).all():
        _supersede(connection, old.id, now)
    values = {**codec.result_values(new), "state": ResultState.DUE, "lane": lane, "due_at": now, "is_current": True}
    connection.execute(insert(result).values(values))


def _current(new: Result) -> ColumnElement[bool]:
    return and_(result.c.study_instance_uid == new.study_instance_uid, result.c.release == new.release, result.c.is_current.is_(True))


def _supersede(connection: Connection, result_id: int, now: float) -> None:
    connection.execute(update(result).where(result.c.id == result_id).values(is_current=False))
    unreported = and_(result.c.id == result_id, result.c.state.in_((ResultState.DUE, ResultState.LEASED, ResultState.FAILED)))
    ended = {"lease_token": None, "leased_until": None, "finished_at": now}
    connection.execute(update(result).where(unreported).values(state=ResultState.SUPERSEDED, **ended))
    documents = select(document.c.id).where(document.c.result_id == result_id)
    # Leased deliveries are left alone: they may be on the wire, and then they are sent.
    unsent = and_(delivery.c.document_id.in_(documents), delivery.c.state.in_((DeliveryState.DUE, DeliveryState.DEAD)))
    connection.execute(update(delivery).where(unsent).values(state=DeliveryState.CANCELLED, reason="superseded", **ended))


def _result_of_delivery(connection: Connection, delivery_id: int) -> int:
    query = select(document.c.result_id).join(delivery, delivery.c.document_id == document.c.id).where(delivery.c.id == delivery_id)
    return int(connection.execute(query).scalar_one())


def _insert_document(connection: Connection, result_id: int, new: NewDocument, now: float) -> None:
    """The bytes that will be sent, for ever the same, and a delivery for each destination.

    A derived document may be there already, for another destination: then that one's bytes go here, too. Of a result that has been
    superseded meanwhile nothing more is sent; its row is locked, so that it cannot be superseded unnoticed.
    """
    of_result = select(result.c.lane, result.c.is_current).where(result.c.id == result_id).with_for_update()
    lane, is_current = connection.execute(of_result).one()
    document_id = _known_document(connection, result_id, new.document) or _store_document(connection, result_id, new.document, now)
    common = {"document_id": document_id, "lane": lane, "due_at": now}
    withheld = {} if is_current else dict.fromkeys(new.destinations, "superseded")
    for name in new.destinations if is_current else ():
        _insert_delivery(connection, {**common, "destination": name, "state": DeliveryState.DUE})
    for name, reason in {**withheld, **new.withheld}.items():
        ended = {"state": DeliveryState.CANCELLED, "reason": reason, "finished_at": now}
        _insert_delivery(connection, {**common, "destination": name, **ended})


def _known_document(connection: Connection, result_id: int, item: Document) -> int | None:
    same = and_(document.c.result_id == result_id, document.c.kind == item.kind)
    return connection.execute(select(document.c.id).where(same)).scalar_one_or_none()


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
    return int(connection.execute(insert(document).values(values).returning(document.c.id)).scalar_one())


def _insert_delivery(connection: Connection, values: dict[str, object]) -> None:
    """A document goes to a destination once: what is there already stands."""
    same = and_(delivery.c.document_id == values["document_id"], delivery.c.destination == values["destination"])
    if connection.execute(select(delivery.c.id).where(same)).first() is None:
        connection.execute(insert(delivery).values(values))
