"""`requeue`: make ended rows of a stage due again, at a person's request.

Many rows go some at a time, so that others write in between. The rows are chosen first, without the
lock that writers wait for. A crash leaves the rest as it was, and the next `requeue` finds it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, false, select, update

from hilum.domain import REASONS, DeliveryState, ServerReason, StudyState, WorkState
from hilum.settings import Destination
from hilum.store.audit.log import Deed
from hilum.store.queue import complete
from hilum.store.queue.queues import QUEUES, in_state, is_stuck
from hilum.store.queue.reopen import OPEN_READINGS, lock, moments
from hilum.store.schema.tables import comparison, delivery, document, reading, result, study
from hilum.verbs import Thing
from hilum.withheld_reports import BY_REASON, Subject, cause_of

# rows, or studies, of one transaction: others wait for the ledger meanwhile, 0.1 ms for each
_TOGETHER = 250
_CHUNK = 10_000  # parameters of one statement; PostgreSQL takes 65,535, SQLite 32,766
_OF_DELIVERIES: Final = (
    "sop_class_refused",
    "data_set_refused",
    "not_authorised",
    "operation_refused",
    "address_refused",
    "document_refused",
    "not_a_dicom_object",
    "message_refused",
    "character_set",
    "not_a_message",
    "not_json",
    "not_a_bundle",
    "entry_refused",
    "file_exists",
    "commitment_failed",
    "commitment_refused",
    "commitment_unanswered",
    "class_ladder",
    "superseded",
    "destination_forgotten",
    *BY_REASON,
)
_OF_COMMITMENTS: Final = ("no_address", "not_reported", "report_refused", "sop_class_refused")
"""Reasons of each stage, as docs/reference/states.md explains them."""
DUE_AGAIN: Final[Mapping[str, object]] = {
    "state": WorkState.DUE,
    "attempts": 0,
    "lapses": 0,
    "reason": None,
    "detail": None,
    "finished_at": None,
}
NO_COMMITMENT: Final[Mapping[str, object]] = {
    **dict.fromkeys(("commitment", "commitment_at", "commitment_due_at", "commitment_uid")),
    "commitment_tries": 0,
}
"""Of a delivery that a person has sent again: its commitment begins anew."""
WITH_STUDY: Final = (
    delivery.join(document, document.c.id == delivery.c.document_id)
    .join(result, result.c.id == document.c.result_id)
    .join(study, study.c.study_instance_uid == result.c.study_instance_uid)
)
SUBJECT: Final = (
    result.c.content["is_trained"].as_boolean().label("is_trained"),
    study.c.calling_ae_title,
    study.c.peer_address,
)
"""What decides whether a delivery is withheld; see `subject_of`."""


def subject_of(row: Row[*tuple[Any, ...]]) -> Subject:
    """The subject of a row with the columns of SUBJECT."""
    return Subject(row.is_trained, row.calling_ae_title, row.peer_address)


def reasons(stage: str) -> tuple[str, ...]:
    """Every reason for which an item of this stage may have ended."""
    return (*REASONS, *{"deliver": _OF_DELIVERIES, "commit": _OF_COMMITMENTS}.get(stage, ()))


def condition(
    stage: str,
    reason: str | None,
    study_uid: str | None,
    destination_name: str | None,
    among: Collection[str] | None,
) -> ColumnElement[bool]:
    """A condition on ended rows of a stage: all arguments together.

    `among`: the configured destinations; None: any.
    """
    table = QUEUES[stage].table
    queue = QUEUES[stage]
    # A rejected image takes no part in anything, however often it is read.
    parts = [
        table.c.state.in_(queue.requeueable),
        table.c.reason.is_distinct_from(ServerReason.REJECTED),
    ]
    if reason is not None:
        parts.append(table.c.reason == reason)
    elif study_uid is None:
        # A rule keeps it from releases: only a person who names the reason or the study undoes it.
        parts.append(table.c.reason.is_distinct_from(ServerReason.NOT_ANALYSED_BY_RULE))
    if destination_name is not None:
        parts.append(delivery.c.destination == destination_name)
    if among is not None and stage == "deliver":
        parts.append(delivery.c.destination.in_(among))
    if study_uid is not None:
        parts.append(_of_study(stage, study_uid))
    return and_(*parts)


def _of_study(stage: str, study_uid: str) -> ColumnElement[bool]:
    if stage == "commit":
        return false()  # its rows are of objects, not of studies
    if stage != "deliver":
        columns = {"analyse": reading, "assemble": study, "compare": comparison, "report": result}
        return columns[stage].c.study_instance_uid == study_uid
    documents = (
        select(document.c.id)
        .join(result, result.c.id == document.c.result_id)
        .where(result.c.study_instance_uid == study_uid)
    )
    return delivery.c.document_id.in_(documents)


def parts(
    connection: Connection,
    stage: str,
    chosen: ColumnElement[bool],
    destinations: Mapping[str, Destination],
) -> list[Sequence[int]]:
    """Row ids for one `requeue` each: rows of the stage, for `analyse` rows of studies.

    Withheld deliveries are left out while the settings of the `destinations` keep them back.
    Readings of one study are due again together: else it could be reported with the first of them,
    and once more with the others.
    """
    if stage == "analyse":
        joined = study.join(reading, reading.c.study_instance_uid == study.c.study_instance_uid)
        query = select(study.c.id).distinct().select_from(joined).where(chosen)
    else:
        table = QUEUES[stage].table
        query = select(table.c.id).where(is_stuck(table), chosen)
    found = set(connection.execute(query).scalars())
    if stage == "deliver":
        found.update(_released(connection, chosen, destinations))
    ids = array("q", sorted(found))  # here: SQLite would rather walk the table than sort
    return [ids[start : start + _TOGETHER].tolist() for start in range(0, len(ids), _TOGETHER)]


def _released(
    connection: Connection, chosen: ColumnElement[bool], destinations: Mapping[str, Destination]
) -> Iterator[int]:
    """Yield withheld deliveries whose cause is gone."""
    for name, destination in destinations.items():
        passing = [reason for reason, cause in BY_REASON.items() if cause.may_be_gone(destination)]
        theirs = and_(
            in_state(delivery, DeliveryState.WITHHELD),
            delivery.c.destination == name,
            delivery.c.reason.in_(passing),
        )
        for row in connection.execute(
            select(delivery.c.id, *SUBJECT).select_from(WITH_STUDY).where(theirs, chosen)
        ):
            if cause_of(destination, subject_of(row)) is None:
                yield row.id


def requeue(
    connection: Connection,
    stage: str,
    chosen: ColumnElement[bool],
    ids: Sequence[int],
    now: float,
    deed: Deed | None = None,
) -> int:
    """Make those rows of one part due that are still as chosen, and return their number.

    Their record begins clean. `deed`: of the person, for a row of the audit in each study whose
    report is released.
    """
    theirs = and_(_of_part(stage, ids), chosen)
    table = QUEUES[stage].table
    values = {**DUE_AGAIN, "due_at": now}
    if stage == "deliver":
        complete.cancel_superseded(connection, theirs, now)
        _note_released(connection, theirs, deed, now)
        values |= {**NO_COMMITMENT, "requeued_at": now}
    rows = (
        connection.execute(update(table).where(theirs).values(values).returning(table.c.id))
        .scalars()
        .all()
    )
    if stage == "analyse" and rows:
        _reopen_studies(connection, rows, now)
    return len(rows)


def _note_released(
    connection: Connection, theirs: ColumnElement[bool], deed: Deed | None, now: float
) -> None:
    """Write one row of the audit for each study, destination and cause that withheld a report.

    Called before the reports are due again. Their rows are locked, so two requests write it once.
    """
    if deed is None:
        return
    columns = result.c.study_instance_uid, delivery.c.destination, delivery.c.reason
    withheld = (
        select(*columns)
        .select_from(WITH_STUDY)
        .where(in_state(delivery, DeliveryState.WITHHELD), theirs)
    )
    rows = connection.execute(withheld.order_by(delivery.c.id).with_for_update(of=delivery)).all()
    for uid, name, reason in dict.fromkeys(map(tuple, rows)):
        deed.of_study(
            connection,
            now,
            uid,
            Thing.DESTINATION,
            name,
            f"released for {name}; was withheld: {reason}",
        )


def _of_part(stage: str, ids: Sequence[int]) -> ColumnElement[bool]:
    if stage != "analyse":
        return QUEUES[stage].table.c.id.in_(ids)
    return reading.c.study_instance_uid.in_(
        select(study.c.study_instance_uid).where(study.c.id.in_(ids))
    )


def _reopen_studies(connection: Connection, reading_ids: Sequence[int], now: float) -> None:
    """Make studies of requeued readings due as soon as those readings have ended.

    A running quiet period goes on.
    """
    again = {"state": StudyState.DUE, **moments(now), "lease_token": None, "leased_until": None}
    fresh = {"attempts": 0, "lapses": 0, "open_readings": OPEN_READINGS}
    for start in range(0, len(reading_ids), _CHUNK):
        theirs = select(reading.c.study_instance_uid).where(
            reading.c.id.in_(reading_ids[start : start + _CHUNK])
        )
        chosen = study.c.study_instance_uid.in_(theirs)
        lock(connection, chosen)
        connection.execute(update(study).where(chosen).values({**again, **fresh}))
