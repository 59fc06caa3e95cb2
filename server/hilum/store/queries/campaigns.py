"""Campaigns as people ask for them: how far each is, which days are read, and dead series.

Counts come from indexes that hold all columns that a count needs, so a campaign of a hundred
thousand series takes a fraction of a second. Nothing here identifies a patient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, Select, and_, case, func, or_, select

from hilum.domain import (
    ENDED_SERIES,
    Campaign,
    CampaignCounts,
    CampaignImageState,
    CampaignState,
    RowOutcome,
    SeriesState,
)
from hilum.store.campaigns.campaigns import campaign_of
from hilum.store.schema import cursor as cursors
from hilum.store.schema.tables import (
    campaign,
    campaign_image,
    campaign_row,
    campaign_series,
    instance,
)

Item = dict[str, Any]
_LISTING: Final = "campaigns"
_DEAD_LISTING: Final = "dead-series"
_DEAD_COLUMNS: Final = (
    "id",
    "study_instance_uid",
    "series_instance_uid",
    "day",
    "modality",
    "origin",
    "attempts",
    "reason",
    "detail",
    "finished_at",
)
_TEN_MINUTES: Final = 600.0
_HOUR: Final = 3600.0
_READ: Final = (CampaignImageState.READ, CampaignImageState.RELEASED)
_OVER: Final = (CampaignState.FINISHED, CampaignState.CANCELLED)
_MONTH_LETTERS: Final = 6  # of YYYYMMDD
_WORDS: Final[Mapping[SeriesState, str]] = {SeriesState.FOUND: "waiting"}
_ImageGroups = Mapping[tuple[str, str | None], int]
Days = Mapping[str, Mapping[SeriesState, int]]


@dataclass(frozen=True, slots=True)
class RecentProgress:
    """Series that ended lately, and their images.

    `minutes`: the length of the longer window, an hour, or less for a campaign that began later.
    """

    series_in_ten_minutes: int = 0
    images_in_ten_minutes: int = 0
    series_in_hour: int = 0
    images_in_hour: int = 0
    minutes: float = 60.0

    @property
    def series_a_minute(self) -> float:
        """Series a minute over the last hour; 0.0: none ended."""
        return self.series_in_hour / max(self.minutes, 1.0)

    @property
    def images_a_minute(self) -> float:
        """Images of these series a minute."""
        return self.images_in_hour / max(self.minutes, 1.0)

    @property
    def series_a_minute_now(self) -> float:
        """Series a minute over the last ten minutes."""
        return self.series_in_ten_minutes / min(max(self.minutes, 1.0), 10.0)


@dataclass(frozen=True, slots=True)
class CampaignOverview:
    """A campaign and how far it is. `images_missing`: listed images that did not come."""

    campaign: Campaign
    counts: CampaignCounts
    images_missing: int = 0


@dataclass(frozen=True, slots=True)
class CampaignProgress(CampaignOverview):
    """Everything that a page shows of one campaign, as one state of the ledger.

    `days`: series by state of each Study Date, YYYYMMDD; "": unknown. `not_read`: images by the
    reason why they gave no numbers. `missing`: images by the reason why they did not come. `dead`:
    series by reason. `rows`: rows of its list by outcome.
    """

    days: Days = field(default_factory=dict)
    recent: RecentProgress = RecentProgress()
    not_read: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[RowOutcome, int] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the rate of the last hour; None: it does not move.

        Hours in which nothing may be fetched are not in it.
        """
        left = self.counts.all_series - self.counts.ended_series
        rate = self.recent.series_a_minute
        if self.campaign.state is not CampaignState.RUNNING or not rate:
            return None
        return left / rate * 60.0


def series_words(series: Mapping[SeriesState, int]) -> str:
    """Return the numbers of series by state, for people."""
    words = [
        f"{series[state]:,} {_WORDS.get(state) or state.replace('_', ' ')}"
        for state in SeriesState
        if series.get(state)
    ]
    return ", ".join(words) or "none"


def image_words(found: CampaignProgress) -> str:
    """Return the numbers of images, for people."""
    counts = found.counts
    words = [
        f"{counts.images_expected:,} listed",
        f"{counts.images_received:,} received",
        f"{counts.images_analysed:,} analysed",
        f"{counts.images_not_analysed:,} not analysed",
    ]
    if found.images_missing:
        words.append(f"{found.images_missing:,} missing")
    return ", ".join(words)


def rate_words(recent: RecentProgress) -> str:
    """Return the rates of the last hour and of the last ten minutes, for people."""
    if not recent.series_in_hour:
        return "no series ended in the last hour"
    return (
        f"{recent.series_a_minute:,.1f} series and {recent.images_a_minute:,.1f} images a minute in"
        f" the last hour, {recent.series_a_minute_now:,.1f} series in the last ten minutes"
    )


def dashed(key: str) -> str:
    """Return `20190314` as `2019-03-14`, and `201903` as `2019-03`."""
    return "-".join(part for part in (key[:4], key[4:6], key[6:]) if part)


def by_month(days: Days) -> dict[str, dict[SeriesState, int]]:
    """Return the same counts for each month, YYYYMM; "": the day is unknown."""
    months: dict[str, Counter[SeriesState]] = {}
    for day, states in days.items():
        months.setdefault(day[:_MONTH_LETTERS], Counter()).update(states)
    return {month: dict(states) for month, states in sorted(months.items())}


def all_days(days: Days) -> dict[SeriesState, int]:
    """Return the sum of all days."""
    found = Counter[SeriesState]()
    for states in days.values():
        found.update(states)
    return dict(found)


def find(connection: Connection, name: str) -> Campaign | None:
    """Return the campaign of this name, or None."""
    row = connection.execute(select(campaign).where(campaign.c.name == name)).first()
    return None if row is None else campaign_of(row)


def page(
    connection: Connection, limit: int, after: str | None
) -> tuple[list[CampaignOverview], str | None]:
    """Return one page of campaigns, newest first, and the cursor of the next. Raises BadCursor."""
    query = select(campaign).order_by(campaign.c.id.desc()).limit(limit + 1)
    if after is not None:
        query = query.where(campaign.c.id < cursors.decode(_LISTING, after)[1])
    found = [campaign_of(row) for row in connection.execute(query)]
    shown = found[:limit]
    following = (
        cursors.encode(_LISTING, shown[-1].created_at, shown[-1].id) if len(found) > limit else None
    )
    studies = _studies_of(connection, [item.id for item in shown])
    return _overviews(connection, shown, studies), following


def watched(
    connection: Connection, now: float, limit: int, over_seconds: float
) -> list[CampaignOverview]:
    """Return the campaigns that a monitor follows: those that run first, then the newest.

    Unfinished ones, and those that ended less than `over_seconds` ago. Their studies are not
    counted: that would take a third of the time of a scrape.
    """
    is_watched = or_(
        campaign.c.state.not_in(_OVER),
        campaign.c.changed_at >= now - over_seconds,
    )
    running_first = case((campaign.c.state == CampaignState.RUNNING, 0), else_=1)
    query = (
        select(campaign)
        .where(is_watched)
        .order_by(running_first, campaign.c.id.desc())
        .limit(limit)
    )
    found = [campaign_of(row) for row in connection.execute(query)]
    return _overviews(connection, found, {})


def progress(connection: Connection, name: str, now: float) -> CampaignProgress | None:
    """Return everything about one campaign but its dead series; None: there is none."""
    known = find(connection, name)
    if known is None:
        return None
    grid = days(connection, known.id)
    images = _images_of(connection, [known.id]).get(known.id, {})
    studies = _studies_of(connection, [known.id]).get(known.id, 0)
    kept = _bytes_kept(connection, known.id)
    return CampaignProgress(
        known,
        _counts(studies, all_days(grid), images, kept),
        _missing_images(images),
        days=grid,
        recent=_recent(connection, known, now),
        not_read=_by_reason(images, _READ),
        missing=_by_reason(images, (CampaignImageState.MISSING,)),
        dead=_dead_reasons(connection, known.id),
        rows=_rows(connection, known.id),
    )


def days(connection: Connection, campaign_id: int) -> dict[str, dict[SeriesState, int]]:
    """Return series by state of each Study Date, in their order; "": the day is unknown."""
    columns = (campaign_series.c.day, campaign_series.c.state)
    query = (
        select(*columns, func.count().label("series"))
        .where(campaign_series.c.campaign_id == campaign_id)
        .group_by(*columns)
        .order_by(*columns)
    )
    found: dict[str, dict[SeriesState, int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.day, {})[SeriesState(row.state)] = row.series
    return found


def dead_series(
    connection: Connection, campaign_id: int, limit: int, after: str | None
) -> tuple[list[Item], str | None]:
    """Return one page of dead series, the last that died first, and the cursor of the next.

    `origin`: a row of the list, or a folder of files. Raises BadCursor.
    """
    listing = f"{_DEAD_LISTING}-{campaign_id}"
    query = _dead_query(campaign_id).limit(limit + 1)
    if after is not None:
        query = query.where(_older_than(*cursors.decode(listing, after)))
    rows = [row._asdict() for row in connection.execute(query)]
    shown = rows[:limit]
    return shown, _cursor_after(listing, shown) if len(rows) > limit else None


def _cursor_after(listing: str, shown: Sequence[Item]) -> str:
    return cursors.encode(listing, float(shown[-1]["finished_at"]), shown[-1]["id"])


def _dead_query(campaign_id: int) -> Select[Any]:
    columns = campaign_series.c
    return (
        select(*(columns[name] for name in _DEAD_COLUMNS))
        .where(_dead(campaign_id))
        .order_by(columns.finished_at.desc(), columns.id.desc())
    )


def _older_than(moment: float, row_id: int) -> ColumnElement[bool]:
    at = campaign_series.c.finished_at
    return or_(at < moment, and_(at == moment, campaign_series.c.id < row_id))


def _dead(campaign_id: int) -> ColumnElement[bool]:
    # Each dead series has the moment of its end: `services.campaigns.progress` sets both at once.
    return and_(
        campaign_series.c.campaign_id == campaign_id,
        campaign_series.c.state == SeriesState.DEAD,
    )


def _overviews(
    connection: Connection, found: Sequence[Campaign], studies: Mapping[int, int]
) -> list[CampaignOverview]:
    ids = [item.id for item in found]
    if not ids:
        return []
    series = _series_of(connection, ids)
    images = _images_of(connection, ids)
    return [
        CampaignOverview(
            item,
            _counts(
                studies.get(item.id, 0),
                series.get(item.id, Counter()),
                images.get(item.id, {}),
            ),
            _missing_images(images.get(item.id, {})),
        )
        for item in found
    ]


def _studies_of(connection: Connection, ids: Collection[int]) -> dict[int, int]:
    """Return the number of studies of each campaign: a walk along the unique index."""
    each = (
        select(campaign_series.c.campaign_id, campaign_series.c.study_instance_uid)
        .where(campaign_series.c.campaign_id.in_(ids))
        .distinct()
        .subquery()
    )
    query = select(each.c.campaign_id, func.count().label("studies")).group_by(each.c.campaign_id)
    return {row.campaign_id: row.studies for row in connection.execute(query)}


def _series_of(connection: Connection, ids: Collection[int]) -> dict[int, Counter[SeriesState]]:
    columns = (campaign_series.c.campaign_id, campaign_series.c.state)
    query = (
        select(*columns, func.count().label("series"))
        .where(campaign_series.c.campaign_id.in_(ids))
        .group_by(*columns)
    )
    found: dict[int, Counter[SeriesState]] = {}
    for row in connection.execute(query):
        found.setdefault(row.campaign_id, Counter())[SeriesState(row.state)] = row.series
    return found


def _images_of(connection: Connection, ids: Collection[int]) -> dict[int, _ImageGroups]:
    """Return the images of each campaign by state and reason."""
    columns = (campaign_image.c.campaign_id, campaign_image.c.state, campaign_image.c.reason)
    query = (
        select(*columns, func.count().label("images"))
        .where(campaign_image.c.campaign_id.in_(ids))
        .group_by(*columns)
    )
    found: dict[int, dict[tuple[str, str | None], int]] = {}
    for row in connection.execute(query):
        found.setdefault(row.campaign_id, {})[row.state, row.reason] = row.images
    return dict(found)


def _counts(
    studies: int, series: Mapping[SeriesState, int], images: _ImageGroups, bytes_kept: int = 0
) -> CampaignCounts:
    here = (CampaignImageState.RECEIVED, *_READ)
    not_analysed = sum(_by_reason(images, _READ).values())
    return CampaignCounts(
        studies=studies,
        series=dict(series),
        images_expected=sum(images.values()),
        images_received=_in_states(images, here),
        images_analysed=_in_states(images, _READ) - not_analysed,
        images_not_analysed=not_analysed,
        bytes_kept=bytes_kept,
    )


def _in_states(images: _ImageGroups, states: Collection[str]) -> int:
    return sum(number for (state, _), number in images.items() if state in states)


def _missing_images(images: _ImageGroups) -> int:
    return _in_states(images, (CampaignImageState.MISSING,))


def _by_reason(images: _ImageGroups, states: Collection[str]) -> dict[str, int]:
    """Return images of these states that have a reason, the most frequent reason first."""
    found = Counter[str]()
    for (state, reason), number in images.items():
        if state in states and reason is not None:
            found[reason] += number
    return dict(found.most_common())


def _dead_reasons(connection: Connection, campaign_id: int) -> dict[str, int]:
    reason = campaign_series.c.reason
    query = select(reason, func.count().label("series")).where(_dead(campaign_id)).group_by(reason)
    found = Counter({row.reason or "": row.series for row in connection.execute(query)})
    return dict(found.most_common())


def _rows(connection: Connection, campaign_id: int) -> dict[RowOutcome, int]:
    outcome = campaign_row.c.outcome
    query = (
        select(outcome, func.count().label("rows"))
        .where(campaign_row.c.campaign_id == campaign_id)
        .group_by(outcome)
    )
    found = {RowOutcome(row.outcome): row.rows for row in connection.execute(query)}
    return {outcome: found[outcome] for outcome in RowOutcome if outcome in found}


def _recent(connection: Connection, known: Campaign, now: float) -> RecentProgress:
    """Return the series that ended in the last hour. A campaign that never ran has none."""
    if known.started_at is None:
        return RecentProgress()
    lately = _ended_since(known.id, now - _HOUR).subquery()
    of_series = lately.c.id == campaign_image.c.series_id
    is_late = lately.c.finished_at >= now - _TEN_MINUTES
    series = _in_windows(connection, lately, is_late)
    images = _in_windows(connection, lately.join(campaign_image, of_series), is_late)
    return RecentProgress(
        series_in_ten_minutes=series[1],
        images_in_ten_minutes=images[1],
        series_in_hour=series[0],
        images_in_hour=images[0],
        minutes=min(max(now - known.started_at, 0.0), _HOUR) / 60.0,
    )


def _in_windows(
    connection: Connection, rows: FromClause, is_late: ColumnElement[bool]
) -> tuple[int, int]:
    """Return the number of rows, and of those that are late."""
    late = func.coalesce(func.sum(case((is_late, 1), else_=0)), 0)
    found = connection.execute(select(func.count(), late).select_from(rows)).one()
    return int(found[0]), int(found[1])


def _ended_since(campaign_id: int, moment: float) -> Select[Any]:
    return select(campaign_series.c.id, campaign_series.c.finished_at).where(
        campaign_series.c.campaign_id == campaign_id,
        campaign_series.c.state.in_(ENDED_SERIES),
        campaign_series.c.finished_at >= moment,
    )


def _bytes_kept(connection: Connection, campaign_id: int) -> int:
    """Return the bytes of images that came for this campaign and are in the archive."""
    query = (
        select(func.coalesce(func.sum(instance.c.size_bytes), 0))
        .select_from(campaign_image)
        .join(instance, instance.c.sop_instance_uid == campaign_image.c.sop_instance_uid)
        .where(
            campaign_image.c.campaign_id == campaign_id,
            campaign_image.c.state.in_((CampaignImageState.RECEIVED, CampaignImageState.READ)),
            campaign_image.c.is_fetched.is_(True),
            instance.c.pixels_removed_at.is_(None),
        )
    )
    return int(connection.execute(query).scalar_one())
