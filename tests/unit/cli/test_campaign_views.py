"""A campaign on a terminal of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console, RenderableType

from hilum.cli.campaigns.status_view import ASCII, plan_view, status_view
from hilum.domain import (
    Campaign,
    CampaignCounts,
    CampaignState,
    PlanDoubt,
    RowOutcome,
    SeriesState,
)
from hilum.store.queries.campaigns import CampaignProgress, RecentProgress

NOW = 1_795_163_400.0
WIDTH = 80
READ = SeriesState.READ
FOUND = SeriesState.FOUND
DEAD = SeriesState.DEAD
Days = Mapping[str, Mapping[SeriesState, int]]


def progress(days: Days, *, detail: str = "", **more: Any) -> CampaignProgress:
    """A campaign that runs with these days; `more`: other fields of its progress."""
    series: dict[SeriesState, int] = {}
    for states in days.values():
        for state, number in states.items():
            series[state] = series.get(state, 0) + number
    state = more.pop("state", CampaignState.RUNNING)
    doubts = more.pop("doubts", ())
    campaign = Campaign(
        1, "old", "pacs", state, {}, NOW, NOW, release="chest@2", detail=detail, doubts=doubts
    )
    counts = CampaignCounts(
        studies=sum(series.values()),
        series=series,
        images_expected=2_000_000,
        images_received=1_900_000,
        images_analysed=1_800_000,
        images_not_analysed=90_000,
    )
    return CampaignProgress(campaign, counts, days=days, **more)


def printed(view: RenderableType) -> list[str]:
    """The lines of a terminal of 80 columns."""
    out = io.StringIO()
    Console(file=out, width=WIDTH, color_system=None).print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


LARGE = progress(
    {
        f"20{year:02d}{month:02d}01": {READ: 4_000, DEAD: 7, FOUND: 5_000}
        for year in range(10, 20)
        for month in range(1, 13)
    },
    recent=RecentProgress(40, 80, 240, 480),
    dead={"not_received": 840, "offline": 3},
    not_read={"lateral_not_supported": 88_000, "body_part_not_chest": 2_000},
    doubts=tuple(PlanDoubt("exactly 500 answers", f"201001{day:02d}") for day in range(1, 12)),
    rows={RowOutcome.FOUND: 90_000, RowOutcome.NONE: 17},
)


def test_no_line_of_a_large_campaign_is_longer_than_the_terminal() -> None:
    lines = printed(status_view(LARGE, NOW + 86400.0 * 38, NOW))
    assert max(len(line) for line in lines) <= WIDTH
    assert len(lines) < 60, "it fits a screen or two"


@pytest.mark.parametrize(
    "said",
    [
        "old  running  pacs, read by chest@2",
        "44.4 %  480,840 of 1,080,840 series",
        "600,000 waiting, 480,000 read, 840 dead",
        "2,000,000 listed, 1,900,000 received, 1,800,000 analysed",
        "4.0 series and 8.0 images a minute in the last hour",
        "in 38 days, ",
        "48,000 of 108,084 read  84 dead",
        "840 not received: The source claimed success",
        "88,000 lateral not supported",
        "90,000 found, 17 none",
        "2010-01-01: exactly 500 answers",
        "and 3 more",
    ],
)
def test_a_status_says(said: str) -> None:
    text = " ".join(" ".join(printed(status_view(LARGE, NOW + 86400.0 * 38, NOW))).split())
    assert " ".join(said.split()) in text


def test_a_plan_says_how_much_it_is_and_how_long_it_will_take() -> None:
    days = {"20190103": {FOUND: 41_000}, "20190104": {FOUND: 212}}
    lines = printed(plan_view(progress(days, state=CampaignState.PLANNED), nights=38))
    assert lines[1] == "41,212 studies, 41,212 series, about 38 nights"
    assert lines[2] == "2 days from 2019-01-03 to 2019-01-04"
    assert any(line.startswith("2019-01-03  ████") and "41,000 series" in line for line in lines)


def test_one_night_and_one_day_are_singular() -> None:
    days = {"20190103": {FOUND: 1}}
    lines = printed(plan_view(progress(days, state=CampaignState.PLANNED), nights=1))
    assert lines[1:3] == ["1 study, 1 series, about 1 night", "1 day: 2019-01-03"]


@pytest.mark.parametrize(
    ("number", "first", "lines"), [(24, "2019-01-01", 24), (28, "2019-01", 1), (900, "2019", 3)]
)
def test_few_days_are_listed_and_many_are_summed(number: int, first: str, lines: int) -> None:
    keys = [f"{2019 + at // 336}{1 + at // 28 % 12:02d}{1 + at % 28:02d}" for at in range(number)]
    listed = [
        line
        for line in printed(status_view(progress({key: {READ: 1} for key in keys}), None, NOW))
        if " read" in line and line.startswith("20")
    ]
    assert (listed[0].split()[0], len(listed)) == (first, lines)


def test_series_without_a_date_come_last() -> None:
    lines = printed(status_view(progress({"": {FOUND: 2}, "20190101": {READ: 1}}), None, NOW))
    found = [line for line in lines if " of " in line and line.endswith("read")]
    assert found[-1].startswith("no date")


def test_one_dead_series_of_many_is_seen_and_a_bar_is_full_only_at_the_end() -> None:
    nearly = progress({"20190101": {READ: 99_998, DEAD: 1, FOUND: 1}})
    (bar,) = (line for line in printed(status_view(nearly, None, NOW, ASCII)) if "99.9 %" in line)
    assert bar.count("x") == 1
    whole = printed(status_view(progress({"20190101": {READ: 3}}), None, NOW, ASCII))
    assert whole[1].startswith("#" * 48 + "  100.0 %")


def test_the_reason_of_a_wait_is_shown_without_its_control_characters() -> None:
    waiting = progress({"20190101": {FOUND: 1}}, detail="refused \x1b[2J by \x9bPACS")
    text = "\n".join(printed(status_view(waiting, None, NOW)))
    assert "refused ?[2J by ?PACS" in text
    assert not {"\x1b", "\x9b"} & set(text)


def test_what_a_source_says_is_no_markup() -> None:
    waiting = progress({"20190101": {FOUND: 1}}, detail="[red]no[/red] [/nothing]")
    assert "[red]no[/red] [/nothing]" in "\n".join(printed(status_view(waiting, None, NOW)))


def test_only_a_campaign_that_goes_on_has_an_end() -> None:
    over = progress({"20190101": {READ: 1}}, state=CampaignState.FINISHED)
    assert not [line for line in printed(status_view(over, None, NOW)) if line.startswith("end")]
    runs = printed(status_view(progress({"20190101": {FOUND: 1}}), None, NOW))
    assert "end      not known" in runs
