"""Campaigns as rows of a ledger at a test's own time: see `testing.campaign_rows`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hilum.domain import SeriesState
from testing import campaign_rows
from testing.campaign_rows import SeededSeries, seed_spring
from tests.support.ledger.street import Clock

__all__ = ["SeededSeries", "seed", "seed_gallery"]


def seed(url: str, clock: Clock, name: str, series: Iterable[SeededSeries], **more: Any) -> None:
    """As `campaign_rows.seed`, at the moment of a clock."""
    campaign_rows.seed(url, clock.now, name, series, **more)


def seed_gallery(url: str, clock: Clock) -> None:
    """Write campaigns for people to look at: one under way, one of ten years, one that is new."""
    seed(url, clock, "ten-years", _ten_years(), source="archive", began_before=86400.0)
    seed_spring(url, clock.now, "chest-2019")
    seed(url, clock, "clinic-list", [SeededSeries("20200107", number=12)], began_before=None)


def _ten_years() -> Iterable[SeededSeries]:
    """A study on some days of each month, of which the first years are read."""
    for at in range(120):
        month = f"{2010 + at // 12}{1 + at % 12:02d}"
        state = SeriesState.READ if at < 70 else SeriesState.FOUND
        yield SeededSeries(f"{month}03", state, age=7000.0)
        yield SeededSeries(f"{month}17", SeriesState.READ if at < 66 else SeriesState.FOUND)
    yield SeededSeries("", SeriesState.FOUND, 2)
