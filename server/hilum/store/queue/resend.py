"""`resend`: send a destination once more the documents that it has accepted.

The stored bytes, under the same UID, at a person's request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, update

from hilum.domain import DeliveryState
from hilum.settings import Destination
from hilum.store.queue.requeue import (
    DUE_AGAIN,
    NO_COMMITMENT,
    SUBJECT,
    WITH_STUDY,
    subject_of,
)
from hilum.store.schema.tables import delivery, document, result, study
from hilum.withheld_reports import advice_of, cause_of

Item = dict[str, Any]
_LADDER: Final = (
    "class_ladder"  # the same report has gone in another SOP Class, and goes in that one again
)
_COLUMNS: Final = (
    delivery.c.id,
    delivery.c.destination,
    delivery.c.state,
    delivery.c.reason,
    document.c.kind,
    document.c.sop_instance_uid,
    result.c.is_current,
    (func.length(document.c.content) > 0).label("has_bytes"),
    *SUBJECT,
)


@dataclass(slots=True)
class Resent:
    """Deliveries that are due again, and those that are not, each with its reason in `why`."""

    due: list[Item] = field(default_factory=list)
    left: list[Item] = field(default_factory=list)


def resend(
    connection: Connection,
    study_uid: str,
    sop_instance_uid: str | None,
    destination_name: str | None,
    destinations: Mapping[str, Destination],
    now: float,
) -> Resent | None:
    """Make delivered documents of a study's current results due again.

    None: there is no such study, or no such document in it. `sop_instance_uid`: of one document
    alone. The rows are locked first, so that two requests at once send once.
    """
    known = select(study.c.id).where(study.c.study_instance_uid == study_uid)
    if connection.execute(known).first() is None:
        return None
    rows = _rows(connection, study_uid, sop_instance_uid)
    if sop_instance_uid is not None and not rows:
        return None
    found = Resent()
    for row in rows:
        if destination_name not in (None, row.destination) or (
            sop_instance_uid is None and row.reason == _LADDER
        ):
            continue
        why = _why_not(row, destinations)
        if why is None:
            _make_due(connection, row.id, now)
            found.due.append(_described(row))
        else:
            found.left.append({**_described(row), "why": why})
    return found


def _described(row: Row[Any]) -> Item:
    return {
        "destination": row.destination,
        "document": row.kind,
        "sop_instance_uid": row.sop_instance_uid,
    }


def _rows(
    connection: Connection, study_uid: str, sop_instance_uid: str | None
) -> Sequence[Row[Any]]:
    """Delivery rows of the current results.

    With a SOP Instance UID also of a document that a newer result has replaced, because the answer
    names it.
    """
    wanted = (
        result.c.is_current.is_(True)
        if sop_instance_uid is None
        else document.c.sop_instance_uid == sop_instance_uid
    )
    query = (
        select(*_COLUMNS)
        .select_from(WITH_STUDY)
        .where(result.c.study_instance_uid == study_uid, wanted)
    )
    return connection.execute(query.order_by(delivery.c.id).with_for_update(of=delivery)).all()


def _why_not(row: Row[Any], destinations: Mapping[str, Destination]) -> str | None:
    """The reason against sending this delivery again; None: it is sent."""
    if (destination := destinations.get(row.destination)) is None:
        return "the settings name no such destination any more"
    if not row.is_current:
        return "a newer result has replaced it; send the report of that one"
    if not row.has_bytes:
        return "its bytes are erased"
    if row.state != DeliveryState.DELIVERED:
        return _not_delivered(row)
    cause = cause_of(destination, subject_of(row))
    return (
        None
        if cause is None
        else (
            f"it would be withheld now ({cause.reason}):"
            f" {cause.advice.format(name=row.destination)}"
        )
    )


def _not_delivered(row: Row[Any]) -> str:
    if row.state in (DeliveryState.DUE, DeliveryState.LEASED):
        return "it is on its way already"
    if row.state == DeliveryState.DEAD:
        return f"it was not delivered ({row.reason}); mend that, then requeue it"
    if row.state == DeliveryState.WITHHELD:
        return (
            f"it was withheld ({row.reason}): {advice_of(row.reason, row.destination)}, then"
            " requeue it"
        )
    return f"it was never delivered ({row.reason})"


def _make_due(connection: Connection, row_id: int, now: float) -> None:
    first = func.coalesce(delivery.c.delivered_at, delivery.c.finished_at)
    moments = {"due_at": now, "requeued_at": now, "delivered_at": first}
    values = {**DUE_AGAIN, **NO_COMMITMENT, **moments}
    connection.execute(update(delivery).where(delivery.c.id == row_id).values(values))
