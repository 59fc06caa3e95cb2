"""Timetables: windows over midnight, and the nights on which the clock changes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum.retrieve.pace.timetable import Timetable, eta

MINUTE = 60
HOUR = 3600


def at(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


NIGHTS = Timetable.of(["mon-fri 20:00-06:00", "sat,sun 00:00-24:00"], "Europe/Berlin")


@pytest.mark.parametrize(
    ("time", "is_open"),
    [
        ("2026-11-26 19:59:59", False),
        ("2026-11-26 20:00", True),
        ("2026-11-27 05:59:59", True),
        ("2026-11-27 06:00", False),
        ("2026-11-28 12:00", True),
        ("2026-11-29 23:59:59", True),
        (
            "2026-11-30 00:00",
            False,
        ),  # the window of Sunday has ended, that of Monday starts at 20:00
        ("2026-11-30 20:00", True),
    ],
)
def test_a_window_belongs_to_the_day_on_which_it_starts(time: str, is_open: bool) -> None:
    assert NIGHTS.is_open(at(time)) is is_open


def test_an_opening_of_several_windows_is_one() -> None:
    assert NIGHTS.closes_at(at("2026-11-27 21:00")) == at("2026-11-30 00:00")
    assert NIGHTS.opens_at(at("2026-11-30 00:00")) == at("2026-11-30 20:00")


def test_a_timetable_without_entries_or_with_the_whole_week_never_closes() -> None:
    for hours in ([], ["00:00-24:00"], ["mon-fri 00:00-24:00", "sat,sun 00:00-24:00"]):
        timetable = Timetable.of(hours, "UTC")

        assert timetable.is_open(0.0)
        assert timetable.opens_at(0.0) is None
        assert timetable.closes_at(0.0) is None
        assert timetable.open_seconds(5.0, 65.0) == 60.0


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("mon-fri", "no time of the form"),
        ("20-06", "no time of the form"),
        ("mon-fri 25:00-06:00", "no clock shows"),
        ("20:60-06:00", "no clock shows"),
        ("24:00-06:00", "starts at 24:00"),
        ("20:00-20:00", "is empty"),
        ("mo-fr 20:00-06:00", "names a day 'mo'"),
        ("mon,,tue 20:00-06:00", "names a day ''"),
        ("", "no time of the form"),
    ],
)
def test_a_bad_entry_is_named_with_the_form(entry: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        Timetable.of([entry], "UTC")

    assert repr(entry) in str(caught.value)


def test_days_may_run_over_the_end_of_the_week() -> None:
    timetable = Timetable.of(["sat-mon 01:00-02:00"], "UTC")

    opened = [day for day in range(23, 30) if timetable.is_open(at(f"2026-11-{day} 01:30", "UTC"))]

    assert opened == [23, 28, 29]


def test_a_time_that_exists_twice_is_open_both_times() -> None:
    timetable = Timetable.of(["02:15-02:45"], "Europe/Berlin")
    first = at("2026-10-25 02:15")
    second = at("2026-10-25 02:15", fold=1)

    assert second - first == HOUR
    assert list(timetable.open_spans(first - HOUR, second + HOUR)) == [
        (first, first + 30 * MINUTE),
        (second, second + 30 * MINUTE),
    ]


def test_a_time_that_never_exists_is_never_open() -> None:
    timetable = Timetable.of(["02:15-02:45"], "Europe/Berlin")

    assert timetable.open_seconds(at("2026-03-29 00:00"), at("2026-03-30 00:00")) == 0
    assert timetable.opens_at(at("2026-03-29 00:00")) == at("2026-03-30 02:15")


def test_a_weekly_window_in_the_missing_hour_opens_a_week_later() -> None:
    timetable = Timetable.of(["sun 02:15-02:45"], "Europe/Berlin")

    assert timetable.opens_at(at("2026-03-22 03:00")) == at("2026-04-05 02:15")


@pytest.mark.parametrize(
    ("zone", "evening", "hours"),
    [
        ("Europe/Berlin", "2026-10-24 20:00", 11.0),
        ("Europe/Berlin", "2026-03-28 20:00", 9.0),
        ("America/New_York", "2026-10-31 20:00", 11.0),
        ("America/New_York", "2026-03-07 20:00", 9.0),
        ("Australia/Lord_Howe", "2026-04-04 20:00", 10.5),
        ("Australia/Lord_Howe", "2026-10-03 20:00", 9.5),
    ],
)
def test_a_night_with_a_change_is_longer_or_shorter(zone: str, evening: str, hours: float) -> None:
    timetable = Timetable.of(["20:00-06:00"], zone)
    start = at(evening, zone)

    assert timetable.closes_at(start) == start + hours * HOUR
    assert timetable.opens_at(start - 1) == start


def test_a_start_in_the_missing_hour_is_when_the_clock_is_set_forward() -> None:
    timetable = Timetable.of(["02:30-06:00"], "Europe/Berlin")

    assert timetable.opens_at(at("2026-03-29 01:00")) == at("2026-03-29 03:00")


def test_the_next_day_starts_right_where_midnight_does_not_exist() -> None:
    timetable = Timetable.of([], "Africa/Cairo")  # 2026-04-24 begins at 01:00

    end = timetable.day_end(at("2026-04-23 12:00", "Africa/Cairo"))

    assert end == at("2026-04-24 01:00", "Africa/Cairo")


ENTRIES = st.lists(
    st.builds(
        lambda days, start, end: (
            f"{days} {start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
        ),
        st.sampled_from(["mon-fri", "sat,sun", "sun", "mon-sun", "fri-mon", "wed"]),
        st.integers(0, 1439),
        st.integers(0, 1440),
    ).filter(lambda entry: entry[-11:-6] != entry[-5:]),
    min_size=1,
    max_size=3,
)
ZONES = st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
CHANGES = st.sampled_from(
    ["2026-10-25", "2026-03-29", "2026-11-01", "2026-03-08", "2026-04-05", "2026-10-04"]
)


@settings(max_examples=60, deadline=None)
@given(ENTRIES, ZONES, CHANGES, st.integers(-30 * 60, 30 * 60), st.integers(1, 20 * 60))
def test_all_answers_agree_with_the_clock_on_the_wall(
    hours: list[str], zone: str, day: str, offset: int, length: int
) -> None:
    timetable = Timetable.of(hours, zone)
    start = at(day, "UTC") + offset * MINUTE

    states = [timetable.is_open(start + minute * MINUTE) for minute in range(length)]
    seconds = timetable.open_seconds(start, start + length * MINUTE)

    assert seconds == sum(states) * MINUTE
    change = timetable.closes_at(start) if states[0] else timetable.opens_at(start)
    if change is None:
        assert len(set(states)) == 1
    else:
        assert timetable.is_open(change) is not states[0]
        assert timetable.is_open(change - 1) is states[0]
        unchanged = states[: max(0, int((change - start) // MINUTE))]
        assert set(unchanged) == {states[0]}


def test_the_estimate_counts_open_time_alone() -> None:
    timetable = Timetable.of(["20:00-06:00"], "Europe/Berlin")

    # 12 hours of transfer: two nights
    ends = eta(43_200, 1.0, timetable, at("2026-11-26 12:00"))

    assert ends == at("2026-11-27 22:00")


def test_there_is_no_estimate_without_a_rate_or_beyond_ten_years() -> None:
    timetable = Timetable.of(["20:00-06:00"], "Europe/Berlin")

    assert eta(10, 0.0, timetable, 0.0) is None
    assert eta(10**12, 1.0, timetable, 0.0) is None
    assert eta(0, 0.0, timetable, 7.0) == 7.0
