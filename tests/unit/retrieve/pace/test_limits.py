"""The pace of a source: each limit closes it, says why, and opens it again."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hilum.retrieve.pace.limits import SourcePace, Wait
from hilum.retrieve.pace.timetable import Timetable
from hilum.settings.sources import CGetSource

ZONE = "Europe/Berlin"
NOON = datetime(2026, 11, 26, 12, tzinfo=ZoneInfo(ZONE)).timestamp()
DAY = 86400


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def paced(clock: Clock, images_today: int = 0, **limits: Any) -> SourcePace:
    section = CGetSource(
        host="127.0.0.1", port=104, ae_title="PACS", **{"slow_down_factor": 0.0, **limits}
    )
    timetable = Timetable.of(section.hours, ZONE)
    return SourcePace(section, timetable, clock, images_today)


def asked(pace: SourcePace, clock: Clock, images: int, seconds: float) -> None:
    """A request that was allowed and has ended."""
    assert pace.closed() is None
    clock.now += seconds
    pace.ended(images, seconds)


def wait_of(pace: SourcePace) -> Wait:
    wait = pace.closed()
    assert wait is not None
    return wait


def outage(pace: SourcePace) -> None:
    assert pace.closed() is None
    pace.ended(0, 1.0, is_outage=True)


def test_without_limits_it_may_be_asked_at_once() -> None:
    clock = Clock()
    pace = paced(clock)

    asked(pace, clock, 500, 100.0)

    assert pace.closed() is None


def test_outside_its_hours_it_waits_for_the_next_opening() -> None:
    clock = Clock()
    pace = paced(clock, hours=("20:00-06:00",))

    assert wait_of(pace) == Wait(NOON + 8 * 3600, "outside the source's hours", "hours")
    clock.now = NOON + 8 * 3600
    assert pace.closed() is None


def test_a_tenth_of_the_time_is_nine_times_the_rest_of_each_request() -> None:
    clock = Clock()
    pace = paced(clock, utilisation=0.1)

    asked(pace, clock, 4, 2.0)

    assert abs(wait_of(pace).until - (clock.now + 18.0)) < 1e-3
    assert "utilisation" in wait_of(pace).reason
    clock.now += 18.001
    assert pace.closed() is None


def test_a_request_with_many_images_is_paid_for_by_the_next_one() -> None:
    clock = Clock()
    pace = paced(clock, images_per_second=2.0)

    asked(pace, clock, 300, 10.0)

    assert wait_of(pace).until == NOON + 150.0
    assert "images_per_second" in wait_of(pace).reason


def test_in_no_minute_more_images_come_than_the_rate_and_one_request() -> None:
    clock = Clock()
    pace = paced(clock, images_per_second=2.0)
    came: list[float] = []
    while clock.now < NOON + 600:
        if pace.closed() is None:
            asked(pace, clock, 7, 0.3)
            came += [clock.now] * 7
        else:
            clock.now += 0.1

    most = max(sum(start <= time < start + 60 for time in came) for start in came)

    assert most <= 2 * 60 + 7
    assert len(came) > 0.9 * 2 * 600


def test_the_maximum_of_a_day_waits_for_midnight_of_its_time_zone() -> None:
    clock = Clock()
    pace = paced(clock, daily_images=10)

    asked(pace, clock, 10, 1.0)

    assert wait_of(pace).until == NOON + 12 * 3600
    assert "10 images came today" in wait_of(pace).reason
    clock.now = NOON + 12 * 3600
    assert pace.closed() is None
    assert pace.images_today == 0


def test_images_of_today_survive_a_restart() -> None:
    pace = paced(Clock(), images_today=10, daily_images=10)

    assert wait_of(pace).until == NOON + 12 * 3600


def test_a_source_that_slows_down_gets_rests_that_double_to_half_an_hour() -> None:
    clock = Clock()
    pace = paced(clock, slow_down_factor=2.0)
    asked(pace, clock, 20, 10.0)
    rests = []
    for _ in range(5):
        asked(pace, clock, 20, 30.0)
        rests.append(wait_of(pace).until - clock.now)
        clock.now = wait_of(pace).until

    assert rests == [300.0, 600.0, 1200.0, 1800.0, 1800.0]


def test_the_reason_of_a_rest_names_both_times() -> None:
    clock = Clock()
    pace = paced(clock, slow_down_factor=2.0)
    asked(pace, clock, 20, 10.0)
    asked(pace, clock, 20, 30.0)

    assert "1.5 s for an image, and needed 0.5 s at first" in wait_of(pace).reason


def test_after_a_fast_stretch_the_rests_start_anew() -> None:
    clock = Clock()
    pace = paced(clock, slow_down_factor=2.0)
    asked(pace, clock, 20, 10.0)
    for seconds in (30.0, 30.0):
        asked(pace, clock, 20, seconds)
        clock.now = wait_of(pace).until
    asked(pace, clock, 20, 10.0)
    asked(pace, clock, 40, 100.0)

    assert wait_of(pace).until == clock.now + 300.0


def test_one_slow_image_is_no_slow_down() -> None:
    clock = Clock()
    pace = paced(clock, slow_down_factor=2.0)
    for _ in range(40):
        asked(pace, clock, 1, 0.5)

    asked(pace, clock, 1, 5.0)

    assert pace.closed() is None


def test_one_outage_closes_nothing_and_two_in_a_row_do() -> None:
    clock = Clock()
    pace = paced(clock)
    outage(pace)
    outage(pace)

    assert wait_of(pace).until == clock.now + 60.0
    assert "2 times in a row" in wait_of(pace).reason


def test_an_answer_between_two_outages_ends_the_row() -> None:
    clock = Clock()
    pace = paced(clock)
    outage(pace)
    asked(pace, clock, 0, 1.0)
    outage(pace)

    assert pace.closed() is None


def test_after_the_pause_one_request_probes() -> None:
    clock = Clock()
    pace = paced(clock)
    outage(pace)
    outage(pace)
    clock.now += 60.0

    permits = [pace.closed() is None for _ in range(3)]

    assert permits == [True, False, False]
    pace.ended(1, 1.0)
    assert pace.closed() is None


def test_pauses_between_probes_double_to_half_an_hour() -> None:
    clock = Clock()
    pace = paced(clock)
    outage(pace)
    pauses = []
    for _ in range(7):
        outage(pace)
        pauses.append((wait_of(pace).until - clock.now) / 60)
        clock.now = wait_of(pace).until

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_longest_of_several_waits_is_named() -> None:
    clock = Clock()
    pace = paced(clock, utilisation=0.5, daily_images=1)

    asked(pace, clock, 1, 1.0)

    assert "daily_images" in wait_of(pace).reason


def test_a_rest_ends_when_the_clock_is_set_back() -> None:
    clock = Clock()
    pace = paced(clock, utilisation=0.1)
    asked(pace, clock, 1, 10.0)

    clock.now -= 3600

    assert pace.closed() is None
