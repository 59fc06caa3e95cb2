"""Our own requests for storage commitment: of documents that a destination has accepted.

PS3.4 annex J, as SCU. A document is asked for in one request at a time. Its row holds the state,
and the request's row the Transaction UID, which is written before the request is sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    text,
    update,
)

from hilum.domain import (
    AskedCommitment,
    CommitmentVerdict,
    DeliveryCommitment,
    DeliveryState,
    RecordedReport,
    SopReference,
)
from hilum.store.queue.clock_recovery import SKEW_SECONDS
from hilum.store.queue.requeue import DUE_AGAIN, NO_COMMITMENT, WITH_STUDY
from hilum.store.schema.tables import asked_commitment, delivery, document, study

OPEN_COMMITMENTS: Final = (DeliveryCommitment.DUE, DeliveryCommitment.ASKED)
FAILED: Final = "commitment_failed"
UNANSWERED: Final = "commitment_unanswered"
REFUSED: Final = "commitment_refused"
_OBJECTS: Final = 100  # of one request: the answer of a PACS stays small, and so does its work
_ROWS: Final = 500  # of one transaction
# Failure Reasons (PS3.3 C.14.1.1). The object may be there: it is asked for again, not sent again.
_DUPLICATE_TRANSACTION: Final = 0x0131
# Sending it again cannot help: the SOP Class is not supported, or is another one there.
_LASTING: Final[Mapping[int, str]] = {
    0x0122: "it does not commit to objects of this SOP Class: enable it there",
    0x0119: "it has another SOP Class for this SOP Instance: see its log",
}
_MEANING: Final[Mapping[int, str]] = {
    0x0110: "processing failure",
    0x0112: "no such object instance",
    0x0213: "resource limitation",
    _DUPLICATE_TRANSACTION: "duplicate transaction UID",
}
_AGAIN_SECONDS: Final = 60.0  # before the first repetition; each further one waits twice as long
# Word for word the condition of the partial index.
_IS_OPEN = text("delivery.commitment IN ('due', 'asked')")
_OF_DESTINATION = delivery.c.destination == bindparam("name")
_IS_DUE = and_(_OF_DESTINATION, delivery.c.commitment_due_at <= bindparam("now"))
_NEXT = select(func.min(delivery.c.commitment_due_at)).where(_IS_OPEN, _OF_DESTINATION)
_DUE = (
    select(
        delivery.c.id,
        document.c.sop_class_uid,
        document.c.sop_instance_uid,
        study.c.calling_ae_title,
        study.c.peer_address,
    )
    .select_from(WITH_STUDY)
    .where(
        _IS_OPEN,
        _IS_DUE,
        delivery.c.commitment_tries < bindparam("tries"),
        delivery.c.state == DeliveryState.DELIVERED,
        document.c.sop_instance_uid.is_not(None),
    )
    .order_by(delivery.c.commitment_due_at, delivery.c.id)
    .limit(_OBJECTS)
    .with_for_update(of=delivery, skip_locked=True)
)
_SPENT = (
    select(delivery.c.id)
    .where(_IS_OPEN, _IS_DUE, delivery.c.commitment_tries >= bindparam("tries"))
    .limit(_ROWS)
    .with_for_update(skip_locked=True)
)
_REQUEST = (
    select(asked_commitment)
    .where(asked_commitment.c.transaction_uid == bindparam("uid"))
    .with_for_update()
)
_ASKED_FOR = (
    select(
        delivery.c.id,
        delivery.c.state,
        delivery.c.commitment,
        delivery.c.commitment_uid,
        delivery.c.commitment_tries,
        document.c.sop_instance_uid,
    )
    .join(document, document.c.id == delivery.c.document_id)
    .where(delivery.c.id.in_(bindparam("rows", expanding=True)))
    .order_by(delivery.c.id)
    .with_for_update(of=delivery)
)
_WAITING = (
    select(
        delivery.c.destination,
        func.count().label("items"),
        func.min(delivery.c.finished_at).label("since"),
    )
    .where(_IS_OPEN)
    .group_by(delivery.c.destination)
)
_FIRST_ACCEPTED = func.coalesce(delivery.c.delivered_at, delivery.c.finished_at)


@dataclass(frozen=True, slots=True)
class AskedScp:
    """The SCP of a destination.

    `ae_title` empty: the sender of each study. `tries`: how often it is asked for a document.
    """

    destination: str
    ae_title: str
    tries: int


def due(moment: float) -> dict[str, Any]:
    """The columns of a delivered document for which its destination is asked from then on."""
    return {"commitment": DeliveryCommitment.DUE, "commitment_due_at": moment}


def seconds_to_next(connection: Connection, name: str, now: float) -> float | None:
    """Seconds until a document of this destination is due to be asked for; None: there is none."""
    first = connection.execute(_NEXT, {"name": name}).scalar()
    return None if first is None else max(0.0, first - now)


def give_up(connection: Connection, scp: AskedScp, unanswered: str, now: float) -> int:
    """End documents that were asked for often enough, and return their number, at most some.

    `unanswered`: the detail of those of which no report came.
    """
    parameters = {"name": scp.destination, "now": now, "tries": scp.tries}
    rows = connection.execute(_SPENT, parameters).scalars().all()
    is_asked = delivery.c.commitment == DeliveryCommitment.ASKED
    ended = _dead(
        case((is_asked, UNANSWERED), else_=REFUSED),
        case((is_asked, unanswered), else_=delivery.c.detail),
        now,
    )
    if rows:
        connection.execute(update(delivery).where(delivery.c.id.in_(rows)).values(ended))
    return len(rows)


def begin(
    connection: Connection, scp: AskedScp, now: float, seconds: float
) -> AskedCommitment | None:
    """Write a request for the documents that are due, and return it; None: none is due.

    If nothing is heard of it within so many seconds, they are due again.
    """
    parameters = {"name": scp.destination, "now": now, "tries": scp.tries}
    rows = connection.execute(_DUE, parameters).all()
    if not rows:
        return None
    first = rows[0]
    if not scp.ae_title:  # one request goes to one sender
        rows = [row for row in rows if _place(row) == _place(first)]
    request = AskedCommitment(
        transaction_uid=f"2.25.{uuid.uuid4().int}",
        destination=scp.destination,
        ae_title=scp.ae_title or first.calling_ae_title.strip(),
        references=tuple(SopReference(row.sop_class_uid, row.sop_instance_uid) for row in rows),
        calling_ae_title=first.calling_ae_title,
        peer_address=first.peer_address,
    )
    ids = [row.id for row in rows]
    names = ("transaction_uid", "destination", "ae_title")
    values = {name: getattr(request, name) for name in names}
    connection.execute(insert(asked_commitment), {**values, "requested_at": now, "deliveries": ids})
    begun = {
        "commitment": DeliveryCommitment.DUE,
        "commitment_due_at": now + seconds,
        "commitment_uid": request.transaction_uid,
        "commitment_tries": delivery.c.commitment_tries + 1,
    }
    connection.execute(update(delivery).where(delivery.c.id.in_(ids)).values(begun))
    return request


def _place(row: Row[*tuple[Any, ...]]) -> tuple[str, str]:
    return row.calling_ae_title, row.peer_address


def asked(connection: Connection, transaction_uid: str, now: float, until: float) -> None:
    """Note that the SCP has taken the request; its report is awaited until then.

    Documents of which it has reported already stay as they are.
    """
    waiting = {
        "commitment": DeliveryCommitment.ASKED,
        "commitment_at": now,
        "commitment_due_at": until,
        "detail": None,
    }
    connection.execute(update(delivery).where(*_still_due(transaction_uid)).values(waiting))


def put_off(
    connection: Connection, transaction_uid: str, detail: str, due_at: float, *, was_sent: bool
) -> None:
    """Make the documents of a request due again that the SCP has not taken.

    A request that was not sent is not counted, and leaves no row.
    """
    values: dict[str, Any] = {"commitment_due_at": due_at, "detail": detail}
    if not was_sent:
        values["commitment_tries"] = delivery.c.commitment_tries - 1
    connection.execute(update(delivery).where(*_still_due(transaction_uid)).values(values))
    if not was_sent:
        of_request = asked_commitment.c.transaction_uid == transaction_uid
        connection.execute(delete(asked_commitment).where(of_request))


def _still_due(transaction_uid: str) -> tuple[Any, ...]:
    theirs = select(asked_commitment.c.destination).where(
        asked_commitment.c.transaction_uid == transaction_uid
    )
    return (
        _IS_OPEN,  # with the destination, it is found by the index
        delivery.c.destination == theirs.scalar_subquery(),
        delivery.c.commitment_uid == transaction_uid,
        delivery.c.commitment == DeliveryCommitment.DUE,
    )


def record_report(
    connection: Connection,
    transaction_uid: str,
    ae_title: str,
    verdict: CommitmentVerdict,
    tries: Mapping[str, int],
    now: float,
) -> RecordedReport | None:
    """Write down a report, and return its effect; None: this SCP has no such request.

    Safe to repeat: a document that is committed or given up stays as it is. A report to an earlier
    request still commits, and fails nothing. `tries`: how often documents are asked for, by
    destination.
    """
    request = connection.execute(_REQUEST, {"uid": transaction_uid}).first()
    if request is None or request.ae_title != ae_title:
        return None
    known = connection.execute(_ASKED_FOR, {"rows": list(request.deliveries)}).all()
    failed = {item.sop_instance_uid: reason for item, reason in verdict.failed}
    kept = {item.sop_instance_uid for item in verdict.committed}.difference(failed)
    names = {row.sop_instance_uid for row in known}
    is_open = [row for row in known if row.commitment in OPEN_COMMITMENTS]
    committed = [row.id for row in is_open if row.sop_instance_uid in kept]
    _commit(connection, committed, now)
    most = tries.get(request.destination, 1)
    lost = [
        _not_kept(connection, row, failed[row.sop_instance_uid], most, now)
        for row in is_open
        if row.sop_instance_uid in failed and row.commitment_uid == transaction_uid
    ]
    connection.execute(
        update(asked_commitment)
        .where(asked_commitment.c.id == request.id)
        .values(answered_at=func.coalesce(asked_commitment.c.answered_at, now))
    )
    return RecordedReport(
        request.destination,
        committed=len(committed),
        resent=lost.count(False),
        dead=lost.count(True),
        unasked=len((kept | failed.keys()) - names),
        missing=len(names - kept - failed.keys() - {None}),
    )


def _commit(connection: Connection, rows: Sequence[int], now: float) -> None:
    values = {
        "commitment": DeliveryCommitment.COMMITTED,
        "commitment_at": now,
        "commitment_due_at": None,
        "detail": None,
    }
    if rows:
        connection.execute(update(delivery).where(delivery.c.id.in_(rows)).values(values))


def _not_kept(
    connection: Connection, row: Row[*tuple[Any, ...]], reason: int, most: int, now: float
) -> bool:
    """Write down that a document is not kept, and return whether it was given up."""
    found = f"0x{reason:04X}"
    if meaning := _LASTING.get(reason) or _MEANING.get(reason):
        found = f"{found}, {meaning}"
    tried = row.commitment_tries
    is_given_up = tried >= most or reason in _LASTING
    pause = _AGAIN_SECONDS * 2.0 ** max(0, tried - 1)
    if is_given_up:
        times = "once" if tried == 1 else f"{tried} times"
        advice = (
            f"asked {times}, and it does not commit to keep it ({found}): see why in its log, then"
            " requeue the delivery"
        )
        values = _dead(FAILED, advice, now)
    elif reason == _DUPLICATE_TRANSACTION:
        values = {**due(now + pause), "detail": f"it did not commit to keep it ({found})"}
    else:
        values = {
            **DUE_AGAIN,
            **NO_COMMITMENT,
            "commitment_tries": tried,
            "due_at": now + pause,
            "delivered_at": _FIRST_ACCEPTED,
            "detail": f"it did not commit to keep it ({found}); the same bytes are sent again",
        }
    connection.execute(update(delivery).where(delivery.c.id == row.id).values(values))
    return is_given_up


def _dead(reason: object, detail: object, now: float) -> dict[str, Any]:
    return {
        "state": DeliveryState.DEAD,
        "reason": reason,
        "detail": detail,
        "finished_at": now,
        "delivered_at": _FIRST_ACCEPTED,
        "commitment": DeliveryCommitment.FAILED,
        "commitment_at": now,
        "commitment_due_at": None,
    }


def forget_others(connection: Connection, names: Collection[str]) -> int:
    """Ask no more for documents of any destination but these, and return their number."""
    others = and_(_IS_OPEN, delivery.c.destination.not_in(names))
    values = {**NO_COMMITMENT, "detail": None}
    return connection.execute(update(delivery).where(others).values(values)).rowcount


def free(connection: Connection, longest_seconds: float, now: float) -> int:
    """Make documents due that wait longer than this, and return their number.

    Their moments are of a clock that was set back. A report that is awaited may still come: that
    wait begins anew.
    """
    is_asked = delivery.c.commitment == DeliveryCommitment.ASKED
    too_late = and_(_IS_OPEN, delivery.c.commitment_due_at > now + longest_seconds + SKEW_SECONDS)
    values = {"commitment_due_at": case((is_asked, now + longest_seconds), else_=now)}
    return connection.execute(update(delivery).where(too_late).values(values)).rowcount


def waiting(connection: Connection) -> dict[str, tuple[int, float]]:
    """For each destination the documents to which it has not committed yet.

    Their number, and the moment at which it accepted the oldest one.
    """
    rows = connection.execute(_WAITING).all()
    return {row.destination: (row.items, row.since) for row in rows if row.since is not None}
