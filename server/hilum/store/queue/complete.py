"""`advance`: write a stage's decisions, and end their leases in the same transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    func,
    insert,
    null,
    select,
    update,
)

from hilum.domain import (
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    Job,
    Lease,
    NewDocument,
    Result,
    ResultState,
)
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue import comparisons
from hilum.store.queue.hand_off import Columns, HandOff
from hilum.store.queue.queues import Queue
from hilum.store.schema import codec
from hilum.store.schema.tables import WORK_TABLES, delivery, document, reading, result, study

# Statements are built once (see `queue/queues`); an UPDATE sets the columns that its parameters
# name.
_HELD = {
    name: PreparedStatement(
        update(table).where(
            table.c.id == bindparam("row"), table.c.lease_token == bindparam("token")
        )
    )
    for name, table in WORK_TABLES.items()
}
# No study waits for a shadow's reading. In one order, or two transactions that end readings of the
# same studies would wait for each other (PostgreSQL).
_WAITING_STUDIES = PreparedStatement(
    select(reading.c.id.label("reading"), study.c.id.label("study"), study.c.open_readings)
    .join(study, study.c.study_instance_uid == reading.c.study_instance_uid)
    .where(reading.c.id.in_(bindparam("ended", expanding=True)), reading.c.is_shadow.is_(False))
    .order_by(study.c.study_instance_uid)
    .with_for_update(of=study),
    "ended",
)
# It may be claimed from now on. Its opening, over an archive, was days ago.
_IS_LATE = and_(bindparam("left") == 0, study.c.due_at < bindparam("now"))
_CLOSE_READINGS = PreparedStatement(
    update(study)
    .where(study.c.id == bindparam("row"))
    .values(
        open_readings=bindparam("left"),
        due_at=case((_IS_LATE, bindparam("now")), else_=study.c.due_at),
    )
)
_EARLIER_RESULTS = PreparedStatement(
    select(
        result.c.study_instance_uid,
        result.c.release,
        result.c.id,
        result.c.source_digest,
        result.c.is_current,
        result.c.state,
    )
    .where(result.c.study_instance_uid.in_(bindparam("uids", expanding=True)))
    .order_by(result.c.id),
    "uids",
)
# The priority of each study, and the most urgent one in which a release has read it.
_PRIORITIES = PreparedStatement(
    select(
        study.c.study_instance_uid,
        study.c.priority,
        reading.c.release,
        func.min(reading.c.priority).label("read_in"),
    )
    .outerjoin(
        reading,
        and_(
            reading.c.study_instance_uid == study.c.study_instance_uid,
            reading.c.is_shadow.is_(False),
        ),
    )
    .where(study.c.study_instance_uid.in_(bindparam("uids", expanding=True)))
    .group_by(study.c.study_instance_uid, study.c.priority, reading.c.release),
    "uids",
)
_RESULT_OF_DELIVERY = (
    select(document.c.result_id)
    .join(delivery, delivery.c.document_id == document.c.id)
    .where(delivery.c.id == bindparam("row"))
)
_RESULT = select(result.c.id, result.c.priority, result.c.is_current)
_RESULTS = PreparedStatement(
    _RESULT.where(result.c.id.in_(bindparam("rows", expanding=True))), "rows"
)
_RESULT_LOCKED = PreparedStatement(_RESULT.where(result.c.id == bindparam("row")).with_for_update())
_KNOWN_DOCUMENTS = select(document.c.kind, document.c.id).where(
    document.c.result_id == bindparam("of")
)
_NEW_RESULT, _NEW_DOCUMENT, _NEW_DELIVERY = (
    PreparedStatement(insert(table).returning(table.c.id)) for table in (result, document, delivery)
)
_NOTHING: Mapping[str, int] = {}
_SUPERSEDED = "superseded"
_UNREPORTED = (ResultState.DUE, ResultState.LEASED, ResultState.FAILED, ResultState.SHADOW)
UNSENT = (DeliveryState.DEAD, DeliveryState.WITHHELD)
"""States of deliveries that ended unsent and may be requeued."""
NEVER_SENT = ("class_ladder", "sop_class_refused", "character_set")
"""Reasons of a tried delivery of which no byte was sent."""
_HAS_IT = delivery.c.delivered_at.is_not(None)
# The former reason is cleared: without a try, the document is known as never sent.
_TRIED = case((delivery.c.reason.in_(NEVER_SENT), 0), else_=delivery.c.attempts)
_KNOWN_DELIVERY = select(delivery.c.id).where(
    delivery.c.document_id == bindparam("of"), delivery.c.destination == bindparam("to")
)


Decided = tuple[Lease, Advance, Job | None]


class LeaseLost(Exception):
    """One of several leases is lost.

    The transaction ends, and the caller tries each decision alone.
    """


def advance_rows(
    connection: Connection,
    queue: Queue,
    decided: Sequence[Decided],
    following: HandOff,
    *,
    at_once: bool,
) -> set[str]:
    """Write decisions and the rows that follow from them, but for `close_readings`.

    Returns the tokens of the leases that were held. The decision of a lost lease is not written.
    With `at_once`, which is cheaper for several, LeaseLost is raised instead. The job of each,
    where it is known, lets following rows be handed on.
    """
    # (1) End the leases. A lease that is lost takes no further part.
    ended = [_ended(lease, item, following.now) for lease, item, _ in decided]
    held = _end_all(connection, queue, ended) if at_once else _end_each(connection, queue, ended)
    written = [(lease, item, job) for lease, item, job in decided if lease.token in held]
    # (2) `assemble` decides results: they supersede others, and are to be reported.
    _insert_results(
        connection, [(new, job) for _, item, job in written for new in item.results], following
    )
    # (3) `report` decides documents of a result; `deliver` may derive one for another SOP Class.
    if documented := [
        (lease.row_id, item.documents, job) for lease, item, job in written if item.documents
    ]:
        (_insert_reports if queue.table is result else _insert_derived)(
            connection, documented, following
        )
    return held


def _end_all(connection: Connection, queue: Queue, ended: Sequence[Mapping[str, Any]]) -> set[str]:
    # Only neighbours together: rows are locked in their order (PostgreSQL).
    for _, group in groupby(ended, tuple):
        alike = list(group)
        if _HELD[queue.table.name].write_each(connection, alike) != len(alike):
            raise LeaseLost
    return {values["token"] for values in ended}


def _end_each(connection: Connection, queue: Queue, ended: Sequence[Mapping[str, Any]]) -> set[str]:
    update_held = _HELD[queue.table.name]
    return {values["token"] for values in ended if update_held.write(connection, values) == 1}


def _ended(lease: Lease, item: Advance, now: float) -> dict[str, Any]:
    ended = {"reason": None, "detail": None, **item.values, "state": item.state, "finished_at": now}
    return {
        **ended,
        "lease_token": None,
        "leased_until": None,
        "row": lease.row_id,
        "token": lease.token,
    }


def close_readings(connection: Connection, reading_ids: Sequence[int], now: float) -> bool:
    """Count a study's ended readings, and return whether a study waits for none any more.

    The last reading of a shadow makes its comparison due.
    """
    if not reading_ids:
        return False
    waiting = _WAITING_STUDIES.all(connection, {"ended": reading_ids})
    left = {row.study: row.open_readings for row in waiting}
    for row in waiting:
        left[row.study] -= 1
    if left:
        _CLOSE_READINGS.write_each(
            connection, [{"row": row, "left": count, "now": now} for row, count in left.items()]
        )
    if shadows := set(reading_ids).difference(row.reading for row in waiting):
        comparisons.hasten(connection, shadows, now)
    return 0 in left.values()


def _insert_results(
    connection: Connection, decided: Sequence[tuple[Result, Job | None]], following: HandOff
) -> None:
    """Insert current results; they supersede those before, whose deliveries end unsent."""
    if not decided:
        return
    uids = {"uids": list({new.study_instance_uid for new, _ in decided})}
    known = _earlier_results(connection, uids)
    priorities: list[PreparedRow] | None = None
    for new, job in decided:
        earlier = known[new.study_instance_uid, new.release]
        if any(old.source_digest == new.source_digest for old in earlier):
            continue  # the same sources were reported already: the stored documents stand
        for old in earlier:
            if old.state == ResultState.SHADOW if new.is_shadow else old.is_current:
                _supersede(connection, old.id, following.now)
        following.follow(job)
        priorities = _PRIORITIES.all(connection, uids) if priorities is None else priorities
        _insert_result(connection, new, _priority_of(new, priorities), following)


def _earlier_results(
    connection: Connection, uids: Mapping[str, list[str]]
) -> Mapping[tuple[str, str], list[PreparedRow]]:
    """Results of these studies, by study and release."""
    known = defaultdict[tuple[str, str], list[PreparedRow]](list)
    for row in _EARLIER_RESULTS.all(connection, uids):
        known[row.study_instance_uid, row.release].append(row)
    return known


def _insert_result(connection: Connection, new: Result, priority: int, following: HandOff) -> None:
    begun = _as_shadow(following.now) if new.is_shadow else following.begin_result(new)
    common = {
        "is_current": not new.is_shadow,
        "priority": priority,
        "due_at": following.now,
    }
    values = {**codec.result_values(new), **begun, **common}
    following.add_result(new, _inserted(connection, _NEW_RESULT, values), begun)


def _priority_of(new: Result, priorities: Sequence[PreparedRow]) -> int:
    """The priority of a result: the study's, or a lower one if its release read it later.

    Reports over an archive do not hold up live ones.
    """
    of_study = [row for row in priorities if row.study_instance_uid == new.study_instance_uid]
    read_in = [row.read_in for row in of_study if row.read_in is not None]
    later = [
        row.read_in for row in of_study if row.release == new.release and row.read_in > min(read_in)
    ]
    return int(later[0] if later else of_study[0].priority)


def _as_shadow(now: float) -> Columns:
    """The state of a shadow's result: it is compared, and gets no documents."""
    return {"state": ResultState.SHADOW, "finished_at": now}


def _supersede(connection: Connection, result_id: int, now: float) -> None:
    connection.execute(update(result).where(result.c.id == result_id).values(is_current=False))
    ended = {"lease_token": None, "leased_until": None, "finished_at": now}
    connection.execute(
        update(result)
        .where(result.c.id == result_id, result.c.state.in_(_UNREPORTED))
        .values(state=ResultState.SUPERSEDED, **ended)
    )
    _cancel_unsent(connection, result_id, now)


def _cancel_unsent(connection: Connection, result_id: int, now: float) -> None:
    documents = select(document.c.id).where(document.c.result_id == result_id)
    # Leased deliveries are left alone: they may be in transmission, and then they are sent.
    is_unsent = delivery.c.state.in_((DeliveryState.DUE, *UNSENT))
    cancel(connection, and_(delivery.c.document_id.in_(documents), is_unsent), _SUPERSEDED, now)


def cancel_superseded(connection: Connection, chosen: ColumnElement[bool], now: float) -> None:
    """Cancel those requeued deliveries that belong to superseded results.

    Their tries stay known.
    """
    old = (
        select(document.c.id)
        .join(result, result.c.id == document.c.result_id)
        .where(result.c.is_current.is_(False))
    )
    is_old = old.where(document.c.id == delivery.c.document_id).exists()
    cancel(connection, and_(chosen, delivery.c.state.in_(UNSENT), is_old), _SUPERSEDED, now)


def cancel(connection: Connection, chosen: ColumnElement[bool], reason: str, now: float) -> int:
    """End these deliveries unsent, and return their number.

    Their tries stay known: after one, the receiver may have the document. A delivery that was to be
    sent again becomes delivered, as before.
    """
    cancelled = {
        "state": case((_HAS_IT, DeliveryState.DELIVERED), else_=DeliveryState.CANCELLED),
        "reason": case((_HAS_IT, null()), else_=reason),
        "detail": case((_HAS_IT, null()), else_=delivery.c.detail),
        "attempts": _TRIED,
        "lease_token": None,
        "leased_until": None,
        "finished_at": func.coalesce(delivery.c.delivered_at, now),
    }
    return connection.execute(update(delivery).where(chosen).values(cancelled)).rowcount


def without_superseded(connection: Connection, jobs: Sequence[Job], now: float) -> list[Job]:
    """The claimed jobs without deliveries of results that were superseded during another try.

    Those end here, untried. However that try ended, an unsent document of such a result is never
    sent: its successor may be there already.
    """
    stale = [job for job in jobs if isinstance(job, DeliveryJob) and not job.is_current]
    for job in stale:
        _end_untried(connection, job, now)
    tokens = {job.lease.token for job in stale}
    return [job for job in jobs if job.lease.token not in tokens]


def _end_untried(connection: Connection, job: DeliveryJob, now: float) -> None:
    ended = _as_delivered(job.delivered_at) if job.delivered_at else _as_superseded(now)
    held = {
        "row": job.lease.row_id,
        "token": job.lease.token,
        "lease_token": None,
        "leased_until": None,
    }
    _HELD[delivery.name].write(connection, {**ended, "attempts": job.lease.attempts - 1, **held})


def _as_superseded(now: float) -> Columns:
    return {"state": DeliveryState.CANCELLED, "reason": _SUPERSEDED, "finished_at": now}


def _as_delivered(at: float) -> Columns:
    """The columns of a delivery that was to be sent again: its destination has had it."""
    return {"state": DeliveryState.DELIVERED, "reason": None, "detail": None, "finished_at": at}


_Documented = tuple[int, Sequence[NewDocument], Job | None]


def _insert_reports(
    connection: Connection, documented: Sequence[_Documented], following: HandOff
) -> None:
    """Insert the reports of results and their deliveries.

    The results' rows are locked since their leases ended, so they cannot be superseded unnoticed.
    """
    rows = _RESULTS.all(connection, {"rows": [row_id for row_id, _, _ in documented]})
    found = {row.id: row for row in rows}
    for row_id, documents, job in documented:
        following.follow(job)
        _insert_documents(connection, found[row_id], documents, following)


def _insert_derived(
    connection: Connection, documented: Sequence[_Documented], following: HandOff
) -> None:
    """Insert documents derived in deliveries, and their deliveries.

    A derived document may be there already, for another destination. Then its bytes go here, too.
    """
    for delivery_id, documents, job in documented:
        following.follow(job)
        result_id = int(connection.execute(_RESULT_OF_DELIVERY, {"row": delivery_id}).scalar_one())
        known = {
            row.kind: row.id for row in connection.execute(_KNOWN_DOCUMENTS, {"of": result_id})
        }
        _insert_documents(
            connection,
            _RESULT_LOCKED.one(connection, {"row": result_id}),
            documents,
            following,
            known,
        )


def _insert_documents(
    connection: Connection,
    of: PreparedRow,
    documents: Sequence[NewDocument],
    following: HandOff,
    known: Mapping[str, int] = _NOTHING,
) -> None:
    """Insert documents, and a delivery for each destination.

    The stored bytes never change. `of`: the result's row, locked. A superseded result sends no
    more.
    """
    for new in documents:
        document_id = known.get(new.document.kind) or _store_document(
            connection, of.id, new.document, following.now
        )
        if not (beginnings := _beginnings(new, following, is_current=of.is_current)):
            continue
        stored = replace(new.document, id=document_id, result_id=of.id)
        common = {"document_id": document_id, "priority": of.priority, "due_at": following.now}
        for name, begun in beginnings.items():
            if new.document.kind in known and _is_there(connection, document_id, name):
                continue  # a document goes to a destination once
            row_id = _inserted(connection, _NEW_DELIVERY, {**common, **begun, "destination": name})
            following.add_delivery(stored, name, row_id, begun)


def _beginnings(new: NewDocument, following: HandOff, *, is_current: bool) -> dict[str, Columns]:
    """The first columns of each destination's delivery. A withheld delivery has ended at once."""
    if not is_current:
        return dict.fromkeys([*new.destinations, *new.withheld], _as_superseded(following.now))
    withheld = {"state": DeliveryState.WITHHELD, "finished_at": following.now}
    return {
        **{name: following.begin_delivery(name) for name in new.destinations},
        **{name: {**withheld, "reason": reason} for name, reason in new.withheld.items()},
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


def _inserted(connection: Connection, new: PreparedStatement, values: Mapping[str, object]) -> int:
    """Execute an insert, and return the id of the new row."""
    return int(new.one(connection, values).id)
