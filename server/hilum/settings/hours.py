"""One entry of a timetable: the days and the time of day in which something may be done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES: Final = 24 * 60
_TIME: Final = r"([0-9]{2}):([0-9]{2})"
_ENTRY: Final = re.compile(rf"((?:[^0-9]* )?){_TIME} ?- ?{_TIME}")
_FORM: Final = (
    "write days and a time, such as 'mon-fri 20:00-06:00', 'sat,sun 00:00-24:00' or, for every"
    " day, '20:00-06:00'"
)


@dataclass(frozen=True, slots=True)
class WeeklyWindow:
    """A window on some days of each week.

    `days`: on which it starts, 0 is Monday. `start`: minutes after midnight, 0 to 1439. `end`:
    likewise, more than `start`; above 1440 it ends on the next day.
    """

    days: frozenset[int]
    start: int
    end: int


def weekly_window(entry: str) -> WeeklyWindow:
    """Return the window of an entry. Raises ValueError, which names the entry and the form."""
    found = _ENTRY.fullmatch(entry.strip().lower())
    if found is None:
        raise ValueError(f"{entry!r} has no time of the form 20:00-06:00; {_FORM}")
    days, *times = found.groups()
    hours = [int(number) for number in times]
    start = _minutes(entry, hours[0], hours[1])
    end = _minutes(entry, hours[2], hours[3])
    _require_window(entry, start, end)
    return WeeklyWindow(_days(entry, days), start, end if end > start else end + DAY_MINUTES)


def _require_window(entry: str, start: int, end: int) -> None:
    if start == DAY_MINUTES:
        raise ValueError(f"{entry!r} starts at 24:00; write 00:00 of the next day")
    if start == end:
        raise ValueError(f"{entry!r} is empty; the whole day is 00:00-24:00")


def _minutes(entry: str, hour: int, minute: int) -> int:
    minutes = hour * 60 + minute
    if minute > 59 or minutes > DAY_MINUTES:
        raise ValueError(f"{entry!r} has a time that no clock shows; {_FORM}")
    return minutes


def _days(entry: str, text: str) -> frozenset[int]:
    if not text.strip():
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        start = _day(entry, first)
        length = (_day(entry, last or first) - start) % 7
        found.update((start + step) % 7 for step in range(length + 1))
    return frozenset(found)


def _day(entry: str, name: str) -> int:
    if name.strip() not in DAYS:
        raise ValueError(
            f"{entry!r} names a day {name.strip()!r}; the days are {', '.join(DAYS)}; {_FORM}"
        )
    return DAYS.index(name.strip())


def _entry(value: str) -> str:
    weekly_window(value)
    return value


Hours = Annotated[str, AfterValidator(_entry)]
