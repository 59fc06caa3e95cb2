"""How far the study of a work item is, and which of our objects a destination has accepted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, select

from hilum.domain import (
    AcceptedObject,
    DeliveryState,
    Outcome,
    ResultState,
    StudyProgress,
    StudyState,
    WorkitemReason,
)
from hilum.store.database.engines import open_reader
from hilum.store.schema.tables import delivery, document, instance, result, study

_OPEN_RESULTS = (ResultState.DUE, ResultState.LEASED)
_OPEN_DELIVERIES = (DeliveryState.DUE, DeliveryState.LEASED)


class StudyProgressView:
    """Reads of the ledger at an SQLAlchemy URL. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._reader.dispose()

    def of(self, study_instance_uid: str, destination: str) -> StudyProgress:
        """Return how far a study is for this destination."""
        with self._reader.connect() as connection:
            row = connection.execute(
                select(study.c.state, study.c.calling_ae_title, study.c.open_readings).where(
                    study.c.study_instance_uid == study_instance_uid
                )
            ).first()
            if row is None:
                return StudyProgress()
            images = connection.execute(
                select(instance.c.sop_instance_uid).where(
                    instance.c.study_instance_uid == study_instance_uid
                )
            ).scalars()
            known = StudyProgress(
                is_known=True, images=frozenset(images), sender=row.calling_ae_title
            )
            if row.state == StudyState.ERASED:
                return replace(known, reason=WorkitemReason.ERASED)
            if row.state == StudyState.FAILED:
                return replace(known, reason=WorkitemReason.ANALYSIS_FAILED)
            if row.state != StudyState.CLOSED or row.open_readings:
                return replace(known, is_open=True)
            return _of_results(connection, known, study_instance_uid, destination)


def _of_results(
    connection: Connection, known: StudyProgress, study_instance_uid: str, destination: str
) -> StudyProgress:
    """Return the progress of a closed study, by its current results."""
    query = select(result.c.id, result.c.state, result.c.outcome).where(
        result.c.study_instance_uid == study_instance_uid,
        result.c.is_current,
        result.c.state != ResultState.SHADOW,
    )
    results = connection.execute(query).all()
    if any(row.state in _OPEN_RESULTS for row in results):
        return replace(known, is_open=True)
    analysed = [row for row in results if row.outcome == Outcome.ANALYSED]
    if not analysed:
        return replace(known, reason=WorkitemReason.NOT_ANALYSED)
    sent = _deliveries(connection, [row.id for row in analysed], destination)
    if any(row.state in _OPEN_DELIVERIES for row in sent):
        return replace(known, is_open=True)
    objects = tuple(
        AcceptedObject(
            study_instance_uid,
            row.series_instance_uid,
            row.sop_class_uid,
            row.sop_instance_uid,
        )
        for row in sent
        if row.state == DeliveryState.DELIVERED
    )
    if objects:
        return replace(known, objects=objects)
    if any(row.state == ResultState.FAILED for row in analysed):
        return replace(known, reason=WorkitemReason.ANALYSIS_FAILED)
    return replace(known, reason=WorkitemReason.NOT_DELIVERED, detail=_undelivered(sent))


def _deliveries(
    connection: Connection, result_ids: Collection[int], destination: str
) -> Sequence[Row[Any]]:
    """Return the deliveries of DICOM objects of these results, as they were made."""
    query = (
        select(
            delivery.c.state,
            delivery.c.reason,
            document.c.sop_class_uid,
            document.c.sop_instance_uid,
            document.c.series_instance_uid,
        )
        .join(document, document.c.id == delivery.c.document_id)
        .where(
            document.c.result_id.in_(result_ids),
            document.c.sop_instance_uid.is_not(None),
            delivery.c.destination == destination,
        )
    )
    return list(connection.execute(query.order_by(delivery.c.id)))


def _undelivered(sent: Sequence[Row[Any]]) -> str:
    """Return the states of deliveries and their reasons, which are words of closed lists."""
    if not sent:
        return "no object is made for it"
    found = {f"{row.state}: {row.reason}" if row.reason else str(row.state) for row in sent}
    return ", ".join(sorted(found))
