"""Answers about campaigns: their plans, and how far each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from hilum.api.fields import Moment, ResponseModel
from hilum.domain import Campaign, CampaignState, RowOutcome, SeriesState
from hilum.store.queries.campaigns import CampaignOverview, CampaignProgress, Days


class SeriesCounts(ResponseModel):
    """Series by state; `all` is their sum."""

    all: int
    found: int = Field(description="Planned, and not requested yet.")
    requested: int
    received: int = Field(description="Each image is in the archive, and not all are read.")
    read: int
    nothing_to_read: int
    dead: int = Field(description="Not all images could be fetched.")


class ImageCounts(ResponseModel):
    """Images that the source has listed so far, by the state of their readings."""

    expected: int = Field(description="All that were listed.")
    received: int = Field(description="Those that came, also if they are read or have left.")
    analysed: int
    not_analysed: int = Field(description="Read, and without numbers for a reason.")
    missing: int = Field(description="They did not come.")


class CampaignAnswer(ResponseModel):
    """One campaign and how far it is."""

    name: str
    source: str = Field(description="A section of `sources`, or files, pictures or archive.")
    state: CampaignState
    release: str | None = Field(description="The release that reads it; null: it never ran.")
    delivers: bool = Field(description="Whether its documents go to the destinations.")
    detail: str = Field(description="Why it fetches nothing now; empty: it does, or is over.")
    created_at: Moment
    changed_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    studies: int
    series: SeriesCounts
    images: ImageCounts


class CampaignPage(ResponseModel):
    """One page of campaigns, newest first."""

    campaigns: list[CampaignAnswer]
    next_cursor: str | None


class DoubtAnswer(ResponseModel):
    """A reason why a plan may be incomplete."""

    text: str
    day: str | None = Field(description="YYYYMMDD; null: the whole plan.")


class RecentAnswer(ResponseModel):
    """Series and images that ended lately, a minute."""

    series_a_minute: float = Field(description="Over the last hour.")
    series_a_minute_now: float = Field(description="Over the last ten minutes.")
    images_a_minute: float = Field(description="Over the last hour.")


class CampaignDetail(CampaignAnswer):
    """One campaign with its plan, its rate, and the reasons of failures."""

    hours: list[str] | None = Field(
        description="When it may fetch, instead of the hours of its source; null: as its source."
    )
    recent: RecentAnswer
    ends_at: Moment | None = Field(
        description="When it will end at this rate; null: not known, or it does not run."
    )
    bytes_kept: int = Field(description="Of its images whose pixels are in the archive.")
    doubts: list[DoubtAnswer]
    not_read: dict[str, int] = Field(description="Images without numbers, by reason.")
    missing: dict[str, int] = Field(description="Images that did not come, by reason.")
    dead: dict[str, int] = Field(description="Dead series, by reason.")
    rows: dict[RowOutcome, int] = Field(description="Rows of its list, by outcome.")


class DayAnswer(SeriesCounts):
    """Series of one Study Date."""

    day: str | None = Field(description="YYYYMMDD; null: unknown.", examples=["20190314"])


class DayList(ResponseModel):
    """Every day with series, in order."""

    days: list[DayAnswer]


class DeadSeriesAnswer(ResponseModel):
    """A series of which not all images could be fetched. `hilum campaign retry` begins it again."""

    study_instance_uid: str
    series_instance_uid: str
    day: str | None = Field(description="Its Study Date, YYYYMMDD; null: unknown.")
    modality: str
    origin: str = Field(description="Rows of the list that name its study, or a folder of files.")
    attempts: int
    reason: str | None
    detail: str | None
    finished_at: Moment | None


class DeadSeriesPage(ResponseModel):
    """One page of dead series, the last that died first."""

    series: list[DeadSeriesAnswer]
    next_cursor: str | None


def campaign_answer(found: CampaignOverview) -> dict[str, Any]:
    """Return the fields of `CampaignAnswer`."""
    counts = found.counts
    return {
        **_of_row(found.campaign),
        "studies": counts.studies,
        "series": series_counts(counts.series),
        "images": {
            "expected": counts.images_expected,
            "received": counts.images_received,
            "analysed": counts.images_analysed,
            "not_analysed": counts.images_not_analysed,
            "missing": found.images_missing,
        },
    }


def campaign_detail(found: CampaignProgress, ends_at: float | None) -> dict[str, Any]:
    """Return the fields of `CampaignDetail`."""
    recent = found.recent
    return {
        **campaign_answer(found),
        "hours": found.campaign.options.hours,
        "recent": {
            "series_a_minute": round(recent.series_a_minute, 2),
            "series_a_minute_now": round(recent.series_a_minute_now, 2),
            "images_a_minute": round(recent.images_a_minute, 2),
        },
        "ends_at": ends_at,
        "bytes_kept": found.counts.bytes_kept,
        "doubts": [{"text": item.text, "day": item.day or None} for item in found.campaign.doubts],
        "not_read": found.not_read,
        "missing": found.missing,
        "dead": found.dead,
        "rows": found.rows,
    }


def day_list(days: Days) -> list[dict[str, Any]]:
    """Return the fields of each `DayAnswer`."""
    return [{"day": day or None, **series_counts(states)} for day, states in days.items()]


def dead_answer(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `DeadSeriesAnswer`."""
    return {**item, "day": item["day"] or None}


def series_counts(series: Mapping[SeriesState, int]) -> dict[str, int]:
    """Return the fields of `SeriesCounts`, with zeros."""
    counts = {state.value: series.get(state, 0) for state in SeriesState}
    return {"all": sum(counts.values()), **counts}


def _of_row(found: Campaign) -> dict[str, Any]:
    return {
        "name": found.name,
        "source": found.source,
        "state": found.state,
        "release": found.release,
        "delivers": found.options.delivers,
        "detail": found.detail,
        "created_at": found.created_at,
        "changed_at": found.changed_at,
        "started_at": found.started_at,
        "finished_at": found.finished_at,
    }
