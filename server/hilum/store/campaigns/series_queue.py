"""The series of one campaign on their way: listed, received, read.

Nothing here trusts a source. An image is received when its row is in the ledger, and read when its
reading has ended. Each call is one transaction, and may be repeated after a crash.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select, update

from hilum.domain import (
    CampaignImageState,
    ExpectedImage,
    ReadingState,
    SeriesReason,
    SeriesState,
    ServerReason,
    StudyState,
)
from hilum.store.campaigns.campaigns import add_images
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.queue.queues import in_state
from hilum.store.schema.tables import (
    campaign_image,
    campaign_series,
    conflict,
    instance,
    reading,
    study,
)

_ENDED_READING: Final = (
    ReadingState.ANALYSED,
    ReadingState.NOT_ANALYSED,
    ReadingState.FAILED,
    ReadingState.ERASED,
)
_UNDER_WAY: Final = (SeriesState.REQUESTED, SeriesState.RECEIVED)
_TOGETHER: Final = 200
_RELEASED_AT_ONCE: Final = 200
_IS_NOT_ERASED: Final = campaign_series.c.reason.is_distinct_from(SeriesReason.ERASED)
_IS_NO_ERASED_IMAGE: Final = campaign_image.c.reason.is_distinct_from(SeriesReason.ERASED)


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One series of a campaign as its row says.

    `attempts`: requests so far. `interruptions`: those whose process ended meanwhile; they are no
    attempts.
    """

    id: int
    study_instance_uid: str
    series_instance_uid: str
    state: SeriesState
    attempts: int
    interruptions: int
    requested_at: float | None


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image of a series under way.

    `is_here`: its pixels are in the archive. `is_read`: the release has read it, for `reason` if
    without numbers. `has_reading`: a reading is due or has ended. `is_closed`: its study is.
    `is_disputed`: other pixels under its UID wait for a person.
    """

    id: int
    series_id: int
    sop_instance_uid: str
    sop_class_uid: str
    origin: str
    state: CampaignImageState
    is_known: bool
    is_here: bool
    has_reading: bool
    is_read: bool
    reason: str | None
    study_row: int | None
    is_closed: bool
    is_fetched: bool
    is_disputed: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """New columns of a series, and of its images by row id."""

    series_id: int
    values: Mapping[str, Any]
    images: Mapping[int, Mapping[str, Any]]


class SeriesQueue:
    """The series of one campaign in the ledger at an SQLAlchemy URL."""

    def __init__(
        self, url: str, campaign_id: int, release: str, clock: Callable[[], float] = time.time
    ) -> None:
        # Progress would be found again after a power cut: it follows from rows that are synced.
        self._engine = open_engine(url, is_synced=False)
        self._reader = open_reader(url)
        self._campaign_id = campaign_id
        self._release = release
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def next_series(self, limit: int) -> list[SeriesRow]:
        """Return found series that are due, in the order of the plan."""
        with self._reader.connect() as connection:
            return _series(
                connection,
                and_(
                    campaign_series.c.campaign_id == self._campaign_id,
                    campaign_series.c.state == SeriesState.FOUND,
                    campaign_series.c.due_at <= self._clock(),
                ),
                limit,
            )

    def due_at(self) -> float | None:
        """Return when the next found series is due; None: there is none."""
        query = select(func.min(campaign_series.c.due_at)).where(
            campaign_series.c.campaign_id == self._campaign_id,
            campaign_series.c.state == SeriesState.FOUND,
        )
        with self._reader.connect() as connection:
            found: float | None = connection.execute(query).scalar()
            return found

    def under_way(self) -> list[SeriesRow]:
        """Return the series that are requested or received, and not read yet."""
        with self._reader.connect() as connection:
            return _series(
                connection,
                and_(
                    campaign_series.c.campaign_id == self._campaign_id,
                    campaign_series.c.state.in_(_UNDER_WAY),
                ),
                None,
            )

    def list_images(self, series_id: int, images: Sequence[ExpectedImage]) -> None:
        """Write the images that the source lists for a series. Images of a former list stay."""
        rows = [
            {
                "campaign_id": self._campaign_id,
                "series_id": series_id,
                "sop_instance_uid": image.sop_instance_uid,
                "sop_class_uid": image.sop_class_uid,
                "origin": image.origin,
                "state": CampaignImageState.EXPECTED,
                "is_fetched": False,
            }
            for image in images
        ]
        of_series = campaign_image.c.series_id == series_id
        with self._engine.begin() as connection:
            query = select(campaign_image.c.sop_instance_uid).where(of_series)
            known = set(connection.execute(query).scalars())
            new = [row for row in rows if row["sop_instance_uid"] not in known]
            add_images(connection, new)

    def request(self, series: Iterable[SeriesRow], fetched: Collection[int]) -> None:
        """Mark series as requested, and the images that are asked for now."""
        now = self._clock()
        asked = {
            "is_fetched": True,
            "state": CampaignImageState.EXPECTED,
            "reason": None,
            "detail": None,
        }
        with self._engine.begin() as connection:
            # Images before their series, here and in an erasure.
            _update_images(connection, fetched, asked)
            for row in series:
                connection.execute(
                    update(campaign_series)
                    .where(campaign_series.c.id == row.id, _IS_NOT_ERASED)
                    .values(
                        state=SeriesState.REQUESTED,
                        attempts=campaign_series.c.attempts + 1,
                        requested_at=now,
                        reason=None,
                        detail=None,
                    )
                )

    def images(self, series_ids: Collection[int]) -> dict[int, list[ImageRow]]:
        """Return the images of these series with their place in archive and ledger."""
        found = defaultdict[int, list[ImageRow]](list)
        ids = sorted(series_ids)
        with self._reader.connect() as connection:
            for start in range(0, len(ids), _TOGETHER):
                for row in connection.execute(
                    _images(self._release, ids[start : start + _TOGETHER])
                ):
                    found[row.series_id].append(_image_of(row))
        return found

    def write(self, changes: Sequence[SeriesChange]) -> None:
        """Write new states of series and images; of an erased study they stay."""
        if not changes:
            return
        with self._engine.begin() as connection:
            for change in sorted(changes, key=attrgetter("series_id")):
                for image_id, values in sorted(change.images.items()):
                    connection.execute(
                        update(campaign_image)
                        .where(campaign_image.c.id == image_id, _IS_NO_ERASED_IMAGE)
                        .values(**values)
                    )
                if change.values:
                    connection.execute(
                        update(campaign_series)
                        .where(campaign_series.c.id == change.series_id, _IS_NOT_ERASED)
                        .values(**change.values)
                    )

    def unreleased(self, after: int = 0) -> dict[str, list[int]]:
        """Return read images whose pixels came for this campaign: row ids by Study Instance UID.

        A batch of rows after this one, in their order.
        """
        query = (
            select(campaign_image.c.id, campaign_series.c.study_instance_uid)
            .join(campaign_series, campaign_series.c.id == campaign_image.c.series_id)
            .where(
                campaign_image.c.campaign_id == self._campaign_id,
                campaign_image.c.state == CampaignImageState.READ,
                campaign_image.c.id > after,
            )
            .order_by(campaign_image.c.id)
            .limit(_RELEASED_AT_ONCE)
        )
        found = defaultdict[str, list[int]](list)
        with self._reader.connect() as connection:
            for row in connection.execute(query):
                found[row.study_instance_uid].append(row.id)
        return found

    def mark_released(self, image_ids: Collection[int], titles: Collection[str]) -> None:
        """Mark those of these images whose pixels have left.

        `titles`: the AE Titles of campaigns. An image that another sender brought is retention's.
        """
        ids = sorted(image_ids)
        with self._engine.begin() as connection:
            for start in range(0, len(ids), _TOGETHER):
                query = (
                    select(
                        campaign_image.c.id,
                        instance.c.pixels_removed_at,
                        instance.c.called_ae_title,
                    )
                    .join(
                        instance, instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid
                    )
                    .where(campaign_image.c.id.in_(ids[start : start + _TOGETHER]))
                )
                rows = connection.execute(query).all()
                released = [
                    row.id
                    for row in rows
                    if row.pixels_removed_at is not None or row.called_ae_title not in titles
                ]
                _update_images(connection, released, {"state": CampaignImageState.RELEASED})

    def bytes_kept(self) -> int:
        """Return the bytes of images that came for this campaign and are in the archive."""
        query = (
            select(func.coalesce(func.sum(instance.c.size_bytes), 0))
            .select_from(campaign_image)
            .join(instance, instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid)
            .where(
                campaign_image.c.campaign_id == self._campaign_id,
                campaign_image.c.state.in_((CampaignImageState.RECEIVED, CampaignImageState.READ)),
                campaign_image.c.is_fetched.is_(True),
                instance.c.pixels_removed_at.is_(None),
            )
        )
        with self._reader.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def late(self) -> list[SeriesRow]:
        """Return dead series of which a missing image has come since."""
        came = (
            select(campaign_image.c.series_id)
            .join(instance, instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid)
            .where(
                campaign_image.c.campaign_id == self._campaign_id,
                campaign_image.c.state == CampaignImageState.MISSING,
                instance.c.pixels_removed_at.is_(None),
            )
            .distinct()
        )
        return self._dead(came)

    def unread_of_dead(self) -> list[SeriesRow]:
        """Return dead series with an image that was received and is not read yet."""
        return self._dead(
            select(campaign_image.c.series_id)
            .where(
                campaign_image.c.campaign_id == self._campaign_id,
                campaign_image.c.state == CampaignImageState.RECEIVED,
            )
            .distinct()
        )

    def _dead(self, ids: Select[Any]) -> list[SeriesRow]:
        with self._reader.connect() as connection:
            return _series(
                connection,
                and_(campaign_series.c.id.in_(ids), campaign_series.c.state == SeriesState.DEAD),
                None,
            )

    def has_open_study(self) -> bool:
        """Return whether a study of the campaign is open: its results may still follow."""
        of_campaign = (
            select(campaign_series.c.id)
            .where(
                campaign_series.c.campaign_id == self._campaign_id,
                campaign_series.c.study_instance_uid == study.c.study_instance_uid,
            )
            .exists()
        )
        open_study = select(study.c.id).where(of_campaign).limit(1)
        # One query for each state, in the order of its index, which is partial.
        due = open_study.where(in_state(study, StudyState.DUE)).order_by(
            study.c.priority, study.c.due_at, study.c.id
        )
        leased = open_study.where(in_state(study, StudyState.LEASED)).order_by(study.c.leased_until)
        with self._reader.connect() as connection:
            return any(connection.execute(query).first() is not None for query in (due, leased))

    def is_over(self) -> bool:
        """Return whether no series is found, requested or received."""
        query = (
            select(campaign_series.c.id)
            .where(
                campaign_series.c.campaign_id == self._campaign_id,
                campaign_series.c.state.in_((SeriesState.FOUND, *_UNDER_WAY)),
            )
            .limit(1)
        )
        with self._reader.connect() as connection:
            return connection.execute(query).first() is None


def _series(
    connection: Connection, condition: ColumnElement[bool], limit: int | None
) -> list[SeriesRow]:
    query = (
        select(campaign_series)
        .where(condition)
        .order_by(campaign_series.c.due_at, campaign_series.c.id)
        .limit(limit)
    )
    return [
        SeriesRow(
            row.id,
            row.study_instance_uid,
            row.series_instance_uid,
            SeriesState(row.state),
            row.attempts,
            row.interruptions,
            row.requested_at,
        )
        for row in connection.execute(query)
    ]


def _images(release: str, series_ids: Sequence[int]) -> Select[Any]:
    is_disputed = (
        select(conflict.c.id)
        .where(
            conflict.c.sop_instance_uid == campaign_image.c.sop_instance_uid,
            conflict.c.state == "held",
        )
        .exists()
    )
    return (
        select(
            campaign_image,
            instance.c.id.label("instance_id"),
            instance.c.pixels_removed_at,
            instance.c.size_bytes,
            instance.c.is_removed,
            reading.c.state.label("reading_state"),
            reading.c.reason.label("reading_reason"),
            study.c.id.label("study_row"),
            study.c.state.label("study_state"),
            is_disputed.label("is_disputed"),
        )
        .outerjoin(instance, instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid)
        .outerjoin(
            reading,
            and_(
                reading.c.instance_id == instance.c.id,
                reading.c.release == release,
                reading.c.is_shadow.is_(False),
            ),
        )
        .outerjoin(study, study.c.study_instance_uid == instance.c.study_instance_uid)
        .where(campaign_image.c.series_id.in_(series_ids))
        .order_by(campaign_image.c.id)
    )


def _image_of(row: Row[Any]) -> ImageRow:
    is_here = row.instance_id is not None and row.pixels_removed_at is None
    # The image was asked for again, and its reading will be opened again when it comes.
    lacks_pixels = row.reading_reason == ServerReason.INSTANCE_MISSING and not is_here
    has_ended = row.reading_state in _ENDED_READING and not lacks_pixels
    is_read = has_ended or _why_never_read(row) is not None
    return ImageRow(
        id=row.id,
        series_id=row.series_id,
        sop_instance_uid=row.sop_instance_uid,
        sop_class_uid=row.sop_class_uid,
        origin=row.origin,
        state=CampaignImageState(row.state),
        is_known=row.instance_id is not None,
        is_here=is_here,
        has_reading=row.reading_state is not None,
        is_read=is_read,
        reason=_reason_of(row) if is_read else None,
        study_row=row.study_row,
        is_closed=row.study_state == StudyState.CLOSED,
        is_fetched=row.is_fetched,
        is_disputed=row.is_disputed,
        size_bytes=row.size_bytes or 0,
    )


def _why_never_read(row: Row[Any]) -> str | None:
    """Return why no reading of an image will be opened; None: one may be."""
    if row.reading_state is not None:
        return None
    if row.is_removed:
        return ServerReason.REJECTED
    return StudyState.FAILED if row.study_state == StudyState.FAILED else None


def _reason_of(row: Row[Any]) -> str | None:
    """Return why a reading that has ended gave no numbers; None: it gave some."""
    if (reason := _why_never_read(row)) is not None:
        return str(reason)
    if row.reading_state == ReadingState.ANALYSED:
        return None
    return str(row.reading_reason or row.reading_state)


def _update_images(
    connection: Connection, image_ids: Iterable[int], values: Mapping[str, Any]
) -> None:
    ids = sorted(image_ids)
    for start in range(0, len(ids), _TOGETHER):
        connection.execute(
            update(campaign_image)
            .where(campaign_image.c.id.in_(ids[start : start + _TOGETHER]), _IS_NO_ERASED_IMAGE)
            .values(**values)
        )
