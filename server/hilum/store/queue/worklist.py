"""The priority of an order: a study's work that waits becomes urgent.

Nothing is lowered. A row that another transaction holds is at work already, and is skipped: so this
waits for none but the study's own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, bindparam, select, update

from hilum.domain import (
    DeliveryState,
    Priority,
    ReadingState,
    ResultState,
    StudyState,
    WorklistAnswer,
)
from hilum.store.schema import codec
from hilum.store.schema.tables import delivery, document, reading, result, study

_OPEN_STUDY: Final = (StudyState.DUE, StudyState.LEASED)
_STUDY = (
    select(study.c.id, study.c.state, study.c.priority, study.c.worklist)
    .where(study.c.study_instance_uid == bindparam("uid"))
    .with_for_update()
)
# Ended ones, too: the priority of a result is that of its release's readings.
_READINGS = (
    select(reading.c.id, reading.c.state)
    .where(
        reading.c.study_instance_uid == bindparam("uid"),
        reading.c.priority == Priority.LIVE,
        reading.c.is_shadow.is_(False),
        reading.c.campaign_id.is_(None),
    )
    .with_for_update(skip_locked=True)
)
# Deliveries of a leased one get its priority.
_RESULTS = (
    select(result.c.id)
    .where(
        result.c.study_instance_uid == bindparam("uid"),
        result.c.priority == Priority.LIVE,
        result.c.state.in_((ResultState.DUE, ResultState.LEASED)),
    )
    .with_for_update(skip_locked=True)
)
_DELIVERIES = (
    select(delivery.c.id)
    .join(document, document.c.id == delivery.c.document_id)
    .join(result, result.c.id == document.c.result_id)
    .where(
        result.c.study_instance_uid == bindparam("uid"),
        delivery.c.priority == Priority.LIVE,
        delivery.c.state == DeliveryState.DUE,
    )
    .with_for_update(skip_locked=True, of=delivery)
)


def take_answer(
    connection: Connection, study_uid: str, answer: WorklistAnswer
) -> WorklistAnswer | None:
    """Write an answer into the study's row, and make work that waits urgent if it says so.

    Returns the answer as it was written; None: there is no such study. An urgent answer stays when
    a later one is not urgent.
    """
    row = connection.execute(_STUDY, {"uid": study_uid}).first()
    if row is None:
        return None
    before = codec.worklist_answer_of(row)
    if before is not None and before.is_urgent and not answer.is_urgent:
        return before
    values: dict[str, Any] = {}
    if answer.is_urgent:
        is_open = row.state in _OPEN_STUDY
        has_raised = _raise_waiting(connection, study_uid, is_open=is_open)
        if is_open and row.priority == Priority.LIVE:
            values["priority"] = Priority.URGENT
            has_raised = True
        was_raised = before is not None and before.has_raised
        answer = replace(answer, has_raised=has_raised or was_raised)
    values |= codec.worklist_values(answer)
    connection.execute(update(study).where(study.c.id == row.id).values(values))
    return answer


def _raise_waiting(connection: Connection, study_uid: str, *, is_open: bool) -> bool:
    """Make readings, results and deliveries urgent; return whether any of them waited."""
    about = {"uid": study_uid}
    readings = connection.execute(_READINGS, about).all() if is_open else []
    results = connection.execute(_RESULTS, about).scalars().all()
    deliveries = connection.execute(_DELIVERIES, about).scalars().all()
    _raise(connection, reading, [row.id for row in readings])
    _raise(connection, result, results)
    _raise(connection, delivery, deliveries)
    is_waiting = any(row.state == ReadingState.DUE for row in readings)
    return is_waiting or bool(results or deliveries)


def _raise(connection: Connection, table: Table, rows: Sequence[int]) -> None:
    if rows:
        is_one: ColumnElement[bool] = table.c.id.in_(rows)
        connection.execute(update(table).where(is_one).values(priority=Priority.URGENT))
