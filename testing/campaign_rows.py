"""Campaigns as rows of a ledger, without a source: each series in the state that a test wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update

from hilum.domain import (
    CampaignImageState,
    CampaignOptions,
    ListRow,
    PlanDoubt,
    PlannedSeries,
    RowOutcome,
    SeriesState,
)
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.database.engines import open_engine
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.schema.tables import campaign_image, campaign_series

RELEASE = "chest@2"
_ENDED = (SeriesState.READ, SeriesState.NOTHING_TO_READ, SeriesState.DEAD)
_IMAGE: Mapping[SeriesState, CampaignImageState] = {
    SeriesState.FOUND: CampaignImageState.EXPECTED,
    SeriesState.REQUESTED: CampaignImageState.EXPECTED,
    SeriesState.RECEIVED: CampaignImageState.RECEIVED,
    SeriesState.READ: CampaignImageState.READ,
    SeriesState.DEAD: CampaignImageState.MISSING,
}


@dataclass(frozen=True)
class SeededSeries:
    """Series of one day that are alike. `age`: seconds since they ended.

    `image_reason`: why none of their images gave numbers. Each has two images.
    """

    day: str
    state: SeriesState = SeriesState.FOUND
    number: int = 1
    reason: str | None = None
    detail: str | None = None
    image_reason: str | None = None
    age: float = 0.0
    origin: str = ""


def seed(
    url: str,
    now: float,
    name: str,
    series: Iterable[SeededSeries],
    *,
    source: str = "pacs",
    doubts: tuple[PlanDoubt, ...] = (),
    list_rows: Mapping[RowOutcome, int] | None = None,
    began_before: float | None = 7200.0,
    hours: tuple[str, ...] | None = None,
) -> None:
    """Write a campaign that began so many seconds ago; None: it was planned and never ran."""
    groups = list(series)
    began = now - (began_before or 0.0)
    with closing(Campaigns(url, lambda: began)) as campaigns:
        known = campaigns.create(name, source, {})
        planned = [
            (
                PlannedSeries(f"1.9.{known.id}.{at}", f"1.9.{known.id}.{at}.1", group.day, "DX", 2),
                (),
            )
            for at, group in enumerate(_one_by_one(groups))
        ]
        listed = [
            ListRow(at, outcome)
            for at, outcome in enumerate(
                [outcome for outcome, number in (list_rows or {}).items() for _ in range(number)],
                start=2,
            )
        ]
        campaigns.add(known.id, PlanPart("end", planned, doubts, listed))
        campaigns.end_plan(name)
        if began_before is not None:
            manifest = KeptManifest(RELEASE, f"digest of {RELEASE}", "")
            campaigns.run(name, RELEASE, CampaignOptions(hours=hours), manifest)
    _set_states(url, known.id, groups, now)


def _one_by_one(groups: Iterable[SeededSeries]) -> list[SeededSeries]:
    return [group for group in groups for _ in range(group.number)]


def _set_states(url: str, campaign_id: int, groups: Iterable[SeededSeries], now: float) -> None:
    series = campaign_series.c
    query = select(series.id).where(series.campaign_id == campaign_id).order_by(series.id)
    engine = open_engine(url)
    with engine.begin() as connection:
        ids = connection.execute(query).scalars().all()
        for statement in _changes(campaign_id, ids, groups, now):
            connection.execute(statement)
    engine.dispose()


def _changes(
    campaign_id: int, ids: Sequence[int], groups: Iterable[SeededSeries], now: float
) -> list[Any]:
    statements: list[Any] = []
    for row_id, group in zip(ids, _one_by_one(groups), strict=True):
        values: dict[str, Any] = {
            "state": group.state,
            "reason": group.reason,
            "detail": group.detail,
            "origin": group.origin,
            "attempts": 4 if group.state is SeriesState.DEAD else 1,
            "finished_at": now - group.age if group.state in _ENDED else None,
        }
        row = campaign_series.c.id == row_id
        statements.append(update(campaign_series).where(row).values(values))
        statements += _images(campaign_id, row_id, group)
    return statements


def _images(campaign_id: int, series_id: int, group: SeededSeries) -> list[Any]:
    state = _IMAGE.get(group.state)
    if state is None:
        return []
    values = [
        {
            "campaign_id": campaign_id,
            "series_id": series_id,
            "sop_instance_uid": f"1.9.{series_id}.1.{number}",
            "sop_class_uid": "1.2.840.10008.5.1.4.1.1.1.1",
            "state": state,
            "reason": group.image_reason or (group.reason if group.state == "dead" else None),
            "is_fetched": True,
        }
        for number in range(2)
    ]
    return [insert(campaign_image).values(values)]


def seed_spring(url: str, now: float, name: str) -> None:
    """Write a campaign under way on eleven weeks of studies, with doubts, a list and dead series."""
    seed(
        url,
        now,
        name,
        _spring(),
        doubts=(
            PlanDoubt("exactly 500 answers, which may be a limit of the PACS", "20190311"),
            PlanDoubt("2 studies have no Study Time, so no part of a split day names them", ""),
        ),
        list_rows={RowOutcome.FOUND: 214, RowOutcome.NONE: 3, RowOutcome.DUPLICATE: 1},
    )


def _spring() -> Iterable[SeededSeries]:
    """Eleven weeks, of which seven are read, with dead series on some days."""
    for at in range(77):
        if at % 7 in (5, 6):
            continue
        day = f"2019{3 + at // 28:02d}{1 + at % 28:02d}"
        number = 2 + at * 5 % 4
        if at > 52:
            yield SeededSeries(day, SeriesState.FOUND, number + 1)
            continue
        if at > 46:
            yield SeededSeries(day, SeriesState.FOUND, 1 + at % 3)
        if at % 11 == 3:
            yield SeededSeries(
                day,
                SeriesState.DEAD,
                reason="not_received",
                detail="2 images missing",
                age=(60 - at) * 60.0,
                origin=f"row {at + 2}",
            )
        if at % 16 == 1:
            yield SeededSeries(
                day, SeriesState.DEAD, reason="offline", detail="OFFLINE", age=(60 - at) * 50.0
            )
        reason = "lateral_not_supported" if at % 5 == 0 else None
        yield SeededSeries(day, SeriesState.READ, number, age=(60 - at) * 70.0, image_reason=reason)
