"""The rows of which tables for researchers are made: studies page by page, in bounded memory.

Patient data is not in columns, so it is not in these rows either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select

from hilum.domain import (
    CampaignImageState,
    ReadingState,
    Result,
    ResultState,
    SeriesState,
    StudyState,
)
from hilum.store.schema.codec import result_of
from hilum.store.schema.tables import (
    campaign,
    campaign_image,
    campaign_series,
    instance,
    reading,
    result,
    study,
)

StudyKey = int | str
"""The place of a study in the order of an export: its row id, or its UID within a campaign."""

_IMAGE_COLUMNS: Final = (
    instance.c.id,
    instance.c.study_instance_uid,
    instance.c.series_instance_uid,
    instance.c.sop_instance_uid,
    instance.c.received_at,
)
_READING_COLUMNS: Final = (
    reading.c.study_instance_uid,
    reading.c.instance_id,
    reading.c.release,
    reading.c.state,
    reading.c.reason,
    reading.c.detail,
    reading.c.finished_at,
    reading.c.preprocessing_version,
    reading.c.campaign_id,
)
_STUDY_COLUMNS: Final = (
    study.c.study_instance_uid,
    study.c.state,
    study.c.reason,
    study.c.calling_ae_title,
    study.c.called_ae_title,
    study.c.last_received_at,
)
# The image's own origin, or that of its series: a source with an address has rows of a list alone.
_ORIGIN: Final = func.coalesce(func.nullif(campaign_image.c.origin, ""), campaign_series.c.origin)
_LISTED: Final = campaign_image.join(
    campaign_series, campaign_series.c.id == campaign_image.c.series_id
).join(campaign, campaign.c.id == campaign_image.c.campaign_id)
_LISTED_COLUMNS: Final = (
    campaign_series.c.series_instance_uid,
    campaign_image.c.campaign_id,
    campaign.c.name.label("campaign"),
    campaign_image.c.sop_instance_uid,
    _ORIGIN.label("origin"),
    campaign_image.c.state,
    campaign_image.c.reason,
    campaign_image.c.detail,
    instance.c.study_instance_uid.label("found_in"),
)
_SERIES_COLUMNS: Final = (
    campaign_series.c.study_instance_uid,
    campaign.c.name.label("campaign"),
    campaign_series.c.series_instance_uid,
    campaign_series.c.day,
    campaign_series.c.origin,
    campaign_series.c.state,
    campaign_series.c.reason,
    campaign_series.c.detail,
)


@dataclass(frozen=True, slots=True)
class StudySelection:
    """Which studies, and which of their results. All conditions hold together; empty: any.

    `received_since`, `received_until`: of the study's last image, seconds since the epoch; the
    second is excluded. `study_date_from`, `study_date_to`: both included; a study without a date is
    left out. `calling_ae_titles`, `called_ae_titles`: of its first image. `campaign_id`: studies
    and images of this campaign alone, and its release where `releases` is empty. `origin_prefix`:
    images whose origin begins so. `has_all_revisions`: also results that a newer one has replaced.
    """

    received_since: float | None = None
    received_until: float | None = None
    study_date_from: date | None = None
    study_date_to: date | None = None
    releases: tuple[str, ...] = ()
    calling_ae_titles: tuple[str, ...] = ()
    called_ae_titles: tuple[str, ...] = ()
    campaign_id: int | None = None
    origin_prefix: str = ""
    study_instance_uids: tuple[str, ...] = ()
    has_all_revisions: bool = False
    has_shadows: bool = False


@dataclass(frozen=True, slots=True)
class ExportedImage:
    """One image of the archive."""

    id: int
    series_instance_uid: str
    sop_instance_uid: str
    received_at: float


@dataclass(frozen=True, slots=True)
class ExportedReading:
    """One release's reading of one image, without its numbers. `finished_at` None: it is open."""

    release: str
    state: ReadingState
    reason: str | None
    detail: str | None
    finished_at: float | None
    preprocessing_version: str | None
    campaign_id: int | None


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One image as a campaign lists it. `origin` empty: the source has none.

    `found_in`: the study of the image in the archive; None: it is not there.
    """

    campaign_id: int
    campaign: str
    series_instance_uid: str
    sop_instance_uid: str
    origin: str
    state: CampaignImageState
    reason: str | None
    detail: str | None
    found_in: str | None


@dataclass(frozen=True, slots=True)
class ListedSeries:
    """One series as a campaign lists it. `day`: YYYYMMDD, or empty."""

    campaign: str
    series_instance_uid: str
    day: str
    origin: str
    state: SeriesState
    reason: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class ExportedStudy:
    """One study in one state of the ledger.

    `state` None: the archive has nothing of it. `readings`: by image's row id, then release.
    `listed`: by SOP Instance UID, in the order of the list; images without a UID stand under "".
    `series`: those of the campaign that is exported.
    """

    study_instance_uid: str
    state: StudyState | None
    reason: str | None
    calling_ae_title: str | None
    called_ae_title: str | None
    results: tuple[Result, ...]
    current_ids: frozenset[int]
    images: tuple[ExportedImage, ...]
    readings: Mapping[int, Mapping[str, ExportedReading]]
    listed: Mapping[str, Sequence[ListedImage]]
    series: tuple[ListedSeries, ...]


def last_study(connection: Connection) -> int:
    """Return the row id of the newest study; 0: there is none."""
    return int(connection.execute(select(func.coalesce(func.max(study.c.id), 0))).scalar_one())


def release_of_campaign(connection: Connection, campaign_id: int) -> str | None:
    """Return the release of a campaign; None: it has never run, or there is no such campaign."""
    query = select(campaign.c.release).where(campaign.c.id == campaign_id)
    found: str | None = connection.execute(query).scalar_one_or_none()
    return found


def page(
    connection: Connection,
    chosen: StudySelection,
    after: StudyKey | None,
    until: int,
    limit: int,
) -> tuple[list[str], StudyKey | None]:
    """Return up to `limit` Study Instance UIDs after the key, and the last key; None: the end.

    `until`: the row id of the last study that is wanted, so that an export ends.
    """
    query = (
        _of_campaign(chosen, after)
        if chosen.campaign_id is not None
        else _of_all(chosen, after, until)
    )
    rows = connection.execute(query.limit(limit)).all()
    return [row.study_instance_uid for row in rows], rows[-1].key if rows else None


def _of_all(chosen: StudySelection, after: StudyKey | None, until: int) -> Select[Any]:
    query = select(study.c.id.label("key"), study.c.study_instance_uid).where(
        study.c.id > (after or 0), study.c.id <= until, *_conditions(chosen)
    )
    if not chosen.study_instance_uids:
        # Along the row ids: else SQLite sorts all studies of an index for each page.
        query = query.with_hint(study, "NOT INDEXED", "sqlite")
    return query.order_by(study.c.id)


def _of_campaign(chosen: StudySelection, after: StudyKey | None) -> Select[Any]:
    uid = campaign_series.c.study_instance_uid
    query = select(uid, uid.label("key")).where(
        campaign_series.c.campaign_id == chosen.campaign_id, uid > (after or "")
    )
    if chosen.study_instance_uids:
        query = query.where(uid.in_(chosen.study_instance_uids))
    if of_study := list(_of_reception(chosen)):
        query = query.where(
            select(study.c.id).where(study.c.study_instance_uid == uid, *of_study).exists()
        )
    return query.distinct().order_by(uid)


def _conditions(chosen: StudySelection) -> Iterator[ColumnElement[bool]]:
    yield study.c.state != StudyState.ERASED
    yield from _of_reception(chosen)
    if chosen.study_instance_uids:
        yield study.c.study_instance_uid.in_(chosen.study_instance_uids)


def _of_reception(chosen: StudySelection) -> Iterator[ColumnElement[bool]]:
    if chosen.received_since is not None:
        yield study.c.last_received_at >= chosen.received_since
    if chosen.received_until is not None:
        yield study.c.last_received_at < chosen.received_until
    if chosen.calling_ae_titles:
        yield study.c.calling_ae_title.in_(chosen.calling_ae_titles)
    if chosen.called_ae_titles:
        yield study.c.called_ae_title.in_(chosen.called_ae_titles)


def studies(
    connection: Connection, chosen: StudySelection, uids: Sequence[str]
) -> list[ExportedStudy]:
    """Return these studies with their rows, in this order. A fixed number of queries."""
    queries = (
        select(*_STUDY_COLUMNS).where(study.c.study_instance_uid.in_(uids)),
        _results(chosen, uids),
        select(*_IMAGE_COLUMNS)
        .where(instance.c.study_instance_uid.in_(uids))
        .order_by(instance.c.id),
        _readings(chosen, uids),
        _listed_images(chosen, uids),
        _listed_series(chosen, uids),
    )
    found = [_by_study(connection.execute(query)) for query in queries]
    return [_study(uid, chosen, *(rows[uid] for rows in found)) for uid in uids]


def _study(
    uid: str,
    chosen: StudySelection,
    own: Sequence[Row[Any]],
    results: Sequence[Row[Any]],
    images: Sequence[Row[Any]],
    readings: Sequence[Row[Any]],
    listed: Sequence[Row[Any]],
    series: Sequence[Row[Any]],
) -> ExportedStudy:
    row = own[0] if own else None
    current = frozenset(_current(results))
    wanted = [each for each in results if chosen.has_all_revisions or each.id in current]
    return ExportedStudy(
        study_instance_uid=uid,
        state=None if row is None else StudyState(row.state),
        reason=None if row is None else row.reason,
        calling_ae_title=None if row is None else row.calling_ae_title,
        called_ae_title=None if row is None else row.called_ae_title,
        results=tuple(result_of(each) for each in wanted),
        current_ids=current,
        images=() if _is_erased(row) else tuple(_image(each) for each in images),
        readings=_by_image(readings),
        listed=_by_uid(listed),
        series=tuple(_series(each) for each in series),
    )


def _is_erased(row: Row[Any] | None) -> bool:
    """Return whether only tombstones are left: then the campaign's list alone says so."""
    return row is not None and row.state == StudyState.ERASED


def _by_image(rows: Iterable[Row[Any]]) -> Mapping[int, Mapping[str, ExportedReading]]:
    found = defaultdict[int, dict[str, ExportedReading]](dict)
    for row in rows:
        found[row.instance_id][row.release] = _reading(row)
    return found


def _by_uid(rows: Iterable[Row[Any]]) -> Mapping[str, Sequence[ListedImage]]:
    found = defaultdict[str, list[ListedImage]](list)
    for row in rows:
        found[row.sop_instance_uid].append(_listed(row))
    return found


def _results(chosen: StudySelection, uids: Sequence[str]) -> Select[Any]:
    """Query the results that are wanted, and of shadows all, oldest first."""
    wanted: ColumnElement[bool] = result.c.is_current.is_(True)
    if chosen.has_all_revisions:
        wanted = result.c.state != ResultState.SHADOW
    if chosen.has_shadows:
        wanted = or_(wanted, result.c.state == ResultState.SHADOW)
    query = select(result).where(
        result.c.study_instance_uid.in_(uids), wanted, result.c.state != ResultState.ERASED
    )
    if chosen.releases:
        query = query.where(result.c.release.in_(chosen.releases))
    return query.order_by(result.c.id)


def _current(rows: Iterable[Row[Any]]) -> Iterator[int]:
    """Yield the row ids of current results of one study. Of a shadow's the newest is current."""
    shadows: dict[str, int] = {}
    for row in rows:
        if row.state == ResultState.SHADOW:
            shadows[row.release] = row.id
        elif row.is_current:
            yield row.id
    yield from shadows.values()


def _readings(chosen: StudySelection, uids: Sequence[str]) -> Select[Any]:
    query = select(*_READING_COLUMNS).where(
        reading.c.study_instance_uid.in_(uids), reading.c.state != ReadingState.ERASED
    )
    if chosen.releases:
        query = query.where(reading.c.release.in_(chosen.releases))
    if not chosen.has_shadows:
        query = query.where(reading.c.is_shadow.is_(False))
    return query.order_by(reading.c.id)


def _listed_images(chosen: StudySelection, uids: Sequence[str]) -> Select[Any]:
    """Of one campaign all images of its list; else those of the archive, in any campaign."""
    of_image = instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid
    if chosen.campaign_id is None:
        query = (
            select(instance.c.study_instance_uid, *_LISTED_COLUMNS)
            .select_from(_LISTED.join(instance, of_image))
            .where(instance.c.study_instance_uid.in_(uids))
        )
    else:
        query = (
            select(campaign_series.c.study_instance_uid, *_LISTED_COLUMNS)
            .select_from(_LISTED.outerjoin(instance, of_image))
            .where(
                campaign_series.c.campaign_id == chosen.campaign_id,
                campaign_series.c.study_instance_uid.in_(uids),
            )
        )
    return query.order_by(campaign_image.c.id)


def _listed_series(chosen: StudySelection, uids: Sequence[str]) -> Select[Any]:
    """Query the series of the one campaign; none without one."""
    return (
        select(*_SERIES_COLUMNS)
        .join(campaign, campaign.c.id == campaign_series.c.campaign_id)
        .where(
            campaign_series.c.campaign_id == (chosen.campaign_id or 0),
            campaign_series.c.study_instance_uid.in_(uids),
        )
        .order_by(campaign_series.c.id)
    )


def _by_study(rows: Iterable[Row[Any]]) -> Mapping[str, list[Row[Any]]]:
    found = defaultdict[str, list[Row[Any]]](list)
    for row in rows:
        found[row.study_instance_uid].append(row)
    return found


def _image(row: Row[Any]) -> ExportedImage:
    return ExportedImage(row.id, row.series_instance_uid, row.sop_instance_uid, row.received_at)


def _reading(row: Row[Any]) -> ExportedReading:
    return ExportedReading(
        release=row.release,
        state=ReadingState(row.state),
        reason=row.reason,
        detail=row.detail,
        finished_at=row.finished_at,
        preprocessing_version=row.preprocessing_version,
        campaign_id=row.campaign_id,
    )


def _listed(row: Row[Any]) -> ListedImage:
    return ListedImage(
        campaign_id=row.campaign_id,
        campaign=row.campaign,
        series_instance_uid=row.series_instance_uid,
        sop_instance_uid=row.sop_instance_uid,
        origin=row.origin,
        state=CampaignImageState(row.state),
        reason=row.reason,
        detail=row.detail,
        found_in=row.found_in,
    )


def _series(row: Row[Any]) -> ListedSeries:
    return ListedSeries(
        campaign=row.campaign,
        series_instance_uid=row.series_instance_uid,
        day=row.day,
        origin=row.origin,
        state=SeriesState(row.state),
        reason=row.reason,
        detail=row.detail,
    )
