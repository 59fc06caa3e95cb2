"""Retention of rows: studies that ended long ago leave the ledger.

It follows the retention of pixels: a study leaves when none of its images has pixels any more. Rows
of rejections stay, so that a rejected image stays out of results. A study is exported before it
leaves (`services/forgotten_studies`). docs/decisions/rows-leave-in-batches.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    func,
    or_,
    select,
    tuple_,
)

from hilum.domain import (
    CampaignState,
    ComparisonState,
    DeliveryState,
    ReadingState,
    ResultState,
    StudyState,
)
from hilum.store.audit.log import Deed
from hilum.store.database.engines import begin_part, open_engine, open_reader
from hilum.store.retention.policy import SENT, finished_at, lock_studies
from hilum.store.schema.tables import (
    assignment,
    audit,
    campaign,
    campaign_series,
    comparison,
    conflict,
    delivery,
    document,
    expired_file,
    former_header,
    instance,
    reading,
    result,
    rollout,
    study,
)

_TOGETHER: Final = 25  # studies of one transaction: others wait for SQLite's lock meanwhile


class RowsKept(StrEnum):
    """Why the rows of an old study stay."""

    OPEN = "open"
    RECENT = "recent"
    PIXELS = "pixels"
    PERSON = "person"
    UNDELIVERED = "undelivered"
    CAMPAIGN = "campaign"
    COMPARISON = "comparison"
    AUDIT = "audit"
    ERASED = "erased"

    @property
    def words(self) -> str:
        """The reason as a sentence for people."""
        return _WORDS[self]


_WORDS: Final[Mapping[RowsKept, str]] = {
    RowsKept.OPEN: "It is not closed, or a reading or a result is open.",
    RowsKept.RECENT: "It ended later: its last delivery is younger, or it has no result.",
    RowsKept.PIXELS: "The archive has pixels of it (retention.days, retention.committed_days).",
    RowsKept.PERSON: "A reading or result of it failed, or other pixels came under its UIDs.",
    RowsKept.UNDELIVERED: "A report of it was not delivered: it is due, dead or withheld.",
    RowsKept.CAMPAIGN: "A campaign that is not over lists it.",
    RowsKept.COMPARISON: "A rollout that is not over compares its results.",
    RowsKept.AUDIT: "The audit names it (retention.audit_days).",
    RowsKept.ERASED: "It was erased; the row stands for it, so that it is not taken for new.",
}
_OF_STUDY_RESULTS: Final = result.c.study_instance_uid == study.c.study_instance_uid
_OF_STUDY_READINGS: Final = reading.c.study_instance_uid == study.c.study_instance_uid
_OF_STUDY_IMAGES: Final = instance.c.study_instance_uid == study.c.study_instance_uid
_OF_STUDY_COMPARISONS: Final = comparison.c.study_instance_uid == study.c.study_instance_uid


@dataclass(frozen=True, slots=True)
class OldStudy:
    """A study whose last image came before the bound. `kept` empty: its rows may leave."""

    id: int
    study_instance_uid: str
    last_received_at: float
    kept: frozenset[RowsKept]


@dataclass(slots=True)
class StudyWalk:
    """The position of a walk along old studies: last receipt and row. None: at the beginning."""

    after: tuple[float, int] | None = None


class RowRetention:
    """Retention of rows in the ledger at an SQLAlchemy URL. Every verb is safe to repeat."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def next_studies(self, before: float, walk: StudyWalk, limit: int) -> list[OldStudy]:
        """The next studies whose last image came before that moment, the oldest first.

        Empty: the end of the walk, which begins anew.
        """
        with self._reader.connect() as connection:
            rows = connection.execute(_next(before, walk.after, limit)).all()
            walk.after = (rows[-1].last_received_at, rows[-1].id) if rows else None
            kept = _reasons(connection, before, [row.id for row in rows])
        return [
            OldStudy(row.id, row.study_instance_uid, row.last_received_at, kept[row.id])
            for row in rows
        ]

    def remove(
        self, studies: Sequence[OldStudy], before: float, now: float, deed: Deed
    ) -> Counter[str]:
        """Delete the rows of these studies that still may leave, and count them by table.

        Some at a time. The last transaction writes the deed with the number of studies; where there
        are several, it begins before the first. A study that has changed since it was chosen stays.
        """
        gone = Counter[str]()
        ids = sorted(each.id for each in studies)
        if len(ids) > _TOGETHER:
            with self._engine.begin() as connection:
                deed.begin(connection, now)
        for start in range(0, len(ids), _TOGETHER):
            together = ids[start : start + _TOGETHER]
            with begin_part(self._engine) as connection:
                lock_studies(connection, together)
                kept = _reasons(connection, before, together)
                gone += _remove(connection, [each for each, why in kept.items() if not why])
                if start + _TOGETHER >= len(ids):
                    deed.write(connection, now, gone[study.name])
        return gone


def _next(before: float, after: tuple[float, int] | None, limit: int) -> Any:  # noqa: ANN401 - SQLAlchemy's own type names every column
    key = (study.c.last_received_at, study.c.id)
    query = select(*key, study.c.study_instance_uid).where(study.c.last_received_at < before)
    if after is not None:
        query = query.where(tuple_(*key) > after, study.c.last_received_at >= after[0])
    return query.order_by(*key).limit(limit)


def _reasons(
    connection: Connection, before: float, ids: Sequence[int]
) -> dict[int, frozenset[RowsKept]]:
    """Why each of these studies stays."""
    columns = [condition.label(reason.value) for reason, condition in _conditions(before).items()]
    query = select(study.c.id, *columns).where(study.c.id.in_(ids))
    return {
        row.id: frozenset(reason for reason in RowsKept if row._asdict()[reason.value])
        for row in connection.execute(query)
    }


def _conditions(before: float) -> dict[RowsKept, ColumnElement[bool]]:
    """Conditions on a study: each keeps its rows."""
    return {
        RowsKept.OPEN: _is_open(),
        RowsKept.RECENT: func.coalesce(finished_at(), before) >= before,
        RowsKept.PIXELS: _has_pixels(),
        RowsKept.PERSON: _needs_person(),
        RowsKept.UNDELIVERED: _is_undelivered(),
        RowsKept.CAMPAIGN: _is_planned(),
        RowsKept.COMPARISON: _is_compared(),
        RowsKept.AUDIT: select(audit.c.id).where(audit.c.study_id == study.c.id).exists(),
        RowsKept.ERASED: study.c.state == StudyState.ERASED,
    }


def _is_open() -> ColumnElement[bool]:
    open_reading = reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED))
    open_result = result.c.state.in_((ResultState.DUE, ResultState.LEASED))
    return or_(
        study.c.state.in_((StudyState.DUE, StudyState.LEASED)),
        study.c.open_readings > 0,
        select(reading.c.id).where(_OF_STUDY_READINGS, open_reading).exists(),
        select(result.c.id).where(_OF_STUDY_RESULTS, open_result).exists(),
    )


def _has_pixels() -> ColumnElement[bool]:
    kept = and_(_OF_STUDY_IMAGES, instance.c.pixels_removed_at.is_(None))
    waiting = select(expired_file.c.id).join(instance, instance.c.id == expired_file.c.instance_id)
    return or_(select(instance.c.id).where(kept).exists(), waiting.where(_OF_STUDY_IMAGES).exists())


def _needs_person() -> ColumnElement[bool]:
    failed_reading = reading.c.state == ReadingState.FAILED
    failed_result = result.c.state == ResultState.FAILED
    disputed = select(conflict.c.id).join(
        instance, instance.c.sop_instance_uid == conflict.c.sop_instance_uid
    )
    return or_(
        study.c.state == StudyState.FAILED,
        select(reading.c.id).where(_OF_STUDY_READINGS, failed_reading).exists(),
        select(result.c.id).where(_OF_STUDY_RESULTS, failed_result).exists(),
        # Also a decision of before: it holds for these bytes, however often they are sent.
        disputed.where(_OF_STUDY_IMAGES).exists(),
    )


def _is_undelivered() -> ColumnElement[bool]:
    ended = (DeliveryState.DELIVERED, DeliveryState.CANCELLED)
    waits = delivery.c.state.not_in(ended)
    return select(delivery.c.id).select_from(SENT).where(_OF_STUDY_RESULTS, waits).exists()


def _is_planned() -> ColumnElement[bool]:
    over = (CampaignState.FINISHED, CampaignState.CANCELLED)
    open_campaigns = select(campaign.c.id).where(campaign.c.state.not_in(over))
    return (
        select(campaign_series.c.id)
        .where(
            campaign_series.c.campaign_id.in_(open_campaigns),
            campaign_series.c.study_instance_uid == study.c.study_instance_uid,
        )
        .exists()
    )


def _is_compared() -> ColumnElement[bool]:
    candidates = select(rollout.c.candidate).where(rollout.c.candidate.is_not(None))
    is_open = comparison.c.state.not_in((ComparisonState.COMPARED, ComparisonState.ERASED))
    return (
        select(comparison.c.id)
        .where(_OF_STUDY_COMPARISONS, or_(is_open, comparison.c.shadow.in_(candidates)))
        .exists()
    )


def _remove(connection: Connection, study_ids: Collection[int]) -> Counter[str]:
    """Delete the rows of locked studies: those that refer to others before those."""
    uids = connection.execute(
        select(study.c.study_instance_uid).where(study.c.id.in_(study_ids))
    ).scalars()
    named = list(uids)
    images = select(instance.c.id).where(instance.c.study_instance_uid.in_(named))
    results = select(result.c.id).where(result.c.study_instance_uid.in_(named))
    papers = select(document.c.id).where(document.c.result_id.in_(results))
    conditions = {
        delivery: delivery.c.document_id.in_(papers),
        document: document.c.result_id.in_(results),
        comparison: comparison.c.study_instance_uid.in_(named),
        assignment: assignment.c.study_instance_uid.in_(named),
        result: result.c.study_instance_uid.in_(named),
        reading: reading.c.study_instance_uid.in_(named),
        former_header: former_header.c.instance_id.in_(images),
        instance: instance.c.study_instance_uid.in_(named),
        study: study.c.id.in_(study_ids),
    }
    gone = Counter[str]()
    if named:
        for table, condition in conditions.items():
            gone[table.name] += connection.execute(delete(table).where(condition)).rowcount
    return gone
