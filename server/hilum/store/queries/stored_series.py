"""Series that the archive's ledger knows, for the plan of a campaign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from hilum.domain import ExpectedImage, PlannedSeries, StudyState
from hilum.store.database.engines import open_reader
from hilum.store.schema.tables import instance, study

_RANGE = 1000  # rows of studies in one part


@dataclass(frozen=True, slots=True)
class StoredSelection:
    """The studies to plan, by receipt of their last image and by the AE Titles of their first.

    `since`, `until`: seconds since the epoch, `until` excluded; None: any.
    """

    since: float | None = None
    until: float | None = None
    calling_ae_title: str | None = None
    called_ae_title: str | None = None
    study_uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The series of a range of studies, up to the row `until`."""

    until: int
    series: Sequence[tuple[PlannedSeries, Sequence[ExpectedImage]]]


class StoredSeries:
    """Queries on the ledger at an SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._reader.dispose()

    def parts(self, chosen: StoredSelection, after: int) -> Iterator[StoredPart]:
        """Yield the series of the chosen studies, oldest study first, after a study's row."""
        with self._reader.connect() as connection:
            last = int(
                connection.execute(select(func.coalesce(func.max(study.c.id), 0))).scalar_one()
            )
        for start in range(after, last, _RANGE):
            end = min(start + _RANGE, last)
            with self._reader.connect() as connection:
                yield StoredPart(end, _series(connection, chosen, start, end))


def _is_chosen(chosen: StoredSelection) -> list[ColumnElement[bool]]:
    parts: list[ColumnElement[bool]] = [study.c.state != StudyState.ERASED]
    if chosen.since is not None:
        parts.append(study.c.last_received_at >= chosen.since)
    if chosen.until is not None:
        parts.append(study.c.last_received_at < chosen.until)
    if chosen.calling_ae_title is not None:
        parts.append(study.c.calling_ae_title == chosen.calling_ae_title)
    if chosen.called_ae_title is not None:
        parts.append(study.c.called_ae_title == chosen.called_ae_title)
    if chosen.study_uids:
        parts.append(study.c.study_instance_uid.in_(chosen.study_uids))
    return parts


def _series(
    connection: Connection, chosen: StoredSelection, after: int, until: int
) -> list[tuple[PlannedSeries, list[ExpectedImage]]]:
    query = (
        select(
            study.c.study_instance_uid,
            study.c.last_received_at,
            instance.c.series_instance_uid,
            instance.c.sop_instance_uid,
            instance.c.sop_class_uid,
        )
        .join(instance, instance.c.study_instance_uid == study.c.study_instance_uid)
        .where(
            and_(study.c.id > after, study.c.id <= until, *_is_chosen(chosen)),
            instance.c.is_removed.is_(False),
        )
        .order_by(study.c.id, instance.c.series_instance_uid, instance.c.id)
    )
    found: dict[tuple[str, str], tuple[Any, list[ExpectedImage]]] = {}
    for row in connection.execute(query):
        key = (row.study_instance_uid, row.series_instance_uid)
        _, images = found.setdefault(key, (row, []))
        images.append(ExpectedImage(row.sop_instance_uid, row.sop_class_uid))
    return [(_planned(row, len(images)), images) for row, images in found.values()]


def _planned(row: Any, images: int) -> PlannedSeries:  # noqa: ANN401 - a row of the query
    """Return a series. Its day is that of receipt: the ledger has no column of Study Date."""
    return PlannedSeries(
        row.study_instance_uid,
        row.series_instance_uid,
        day=datetime.fromtimestamp(row.last_received_at, UTC).strftime("%Y%m%d"),
        images=images,
    )
