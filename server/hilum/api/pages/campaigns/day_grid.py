"""The days of a campaign as a calendar: one square a day, or one a month where they are many.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hilum.api.pages.formatting import count
from hilum.domain import SeriesState
from hilum.store.queries.campaigns import Days, by_month, dashed

MOST_DAYS: Final = 120  # of which each has a square of its own
_STEPS: Final = 4  # of colour, from nothing read to all
_DAY_COLUMNS: Final = tuple(str(day) for day in range(1, 32))
_MONTH_COLUMNS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_READ: Final = (SeriesState.READ, SeriesState.NOTHING_TO_READ)


@dataclass(frozen=True, slots=True)
class Square:
    """One day or month. `step`: 0 (nothing is read) to 4 (all). `words`: the same as text."""

    label: str
    step: int
    is_dead: bool
    words: str
    planned: int
    read: int
    dead: int


@dataclass(frozen=True, slots=True)
class GridRow:
    """Squares below each other's column; None: no study of that day."""

    label: str
    squares: Sequence[Square | None]


@dataclass(frozen=True, slots=True)
class DayGrid:
    """A calendar. `columns`: their labels. `unknown`: series without a usable Study Date."""

    noun: str
    columns: Sequence[str]
    rows: Sequence[GridRow]
    unknown: Square | None

    @property
    def squares(self) -> list[Square]:
        """Every square in the order of time, and the unknown day last."""
        found = [item for row in self.rows for item in row.squares if item is not None]
        return [*found, *([self.unknown] if self.unknown else [])]


def day_grid(days: Days) -> DayGrid:
    """Return the calendar of a campaign."""
    known = {day: states for day, states in days.items() if _is_day(day)}
    others = [states for day, states in days.items() if not _is_day(day)]
    unknown = _square("no usable Study Date", _sum(others)) if others else None
    if len(known) > MOST_DAYS:
        months = by_month(known)
        return DayGrid("month", _MONTH_COLUMNS, _rows(months, 4, len(_MONTH_COLUMNS)), unknown)
    return DayGrid("day", _DAY_COLUMNS, _rows(known, 6, len(_DAY_COLUMNS)), unknown)


def _is_day(day: str) -> bool:
    """Return whether this is YYYYMMDD with a place in the calendar: scanners send others, too."""
    return (
        len(day) == len("20190131")
        and day.isascii()
        and day.isdigit()
        and 1 <= int(day[4:6]) <= len(_MONTH_COLUMNS)
        and 1 <= int(day[6:]) <= len(_DAY_COLUMNS)
    )


def _rows(counts: Days, letters: int, columns: int) -> list[GridRow]:
    """Return a row for each month or year that has series; `letters` of a key name its row."""
    found: dict[str, list[Square | None]] = {}
    for key, states in sorted(counts.items()):
        squares = found.setdefault(key[:letters], [None] * columns)
        squares[int(key[letters:]) - 1] = _square(dashed(key), states)
    return [GridRow(dashed(key), squares) for key, squares in found.items()]


def _sum(states: Sequence[Mapping[SeriesState, int]]) -> dict[SeriesState, int]:
    return {state: sum(item.get(state, 0) for item in states) for state in SeriesState}


def _square(label: str, states: Mapping[SeriesState, int]) -> Square:
    planned = sum(states.values())
    read = sum(states.get(state, 0) for state in _READ)
    dead = states.get(SeriesState.DEAD, 0)
    words = f"{label}: {read:,} of {planned:,} series read"
    if dead:
        words += f", {dead:,} dead"
    return Square(label, _step(read, planned), dead > 0, words, planned, read, dead)


def _step(read: int, planned: int) -> int:
    """Return the colour: the full one only where all are read, and some where any is."""
    return _STEPS if read == planned else min(_STEPS - 1, -(-read * _STEPS // planned))


def grid_words(grid: DayGrid) -> str:
    """`38 days`, `120 months`."""
    return count(sum(item is not None for row in grid.rows for item in row.squares), grid.noun)
