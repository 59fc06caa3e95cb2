"""The timetable of a source: when it may be asked, by the local clock of its time zone.

The clock on the wall decides. A time that exists twice, when the clock is set back, is inside both
times or outside both times. A window that would start at a time that does not exist starts when
the clock is set forward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hilum.settings.hours import DAY_MINUTES, WeeklyWindow, weekly_window

_DAY: Final = 86400
_WEEK: Final = 7 * _DAY
# The epoch began on a Thursday; weeks are counted from a Monday.
_EPOCH_TO_MONDAY: Final = 3 * _DAY
# A weekly window that falls into a change of the clock comes a week later.
_HORIZON: Final = 3 * _WEEK
_LONGEST_ETA: Final = 10 * 365 * _DAY

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Timetable:
    """When a source may be asked. Times are seconds since the epoch.

    `spans`: seconds of the local week from Monday 00:00, sorted, apart from each other. None: it is
    always open.
    """

    zone: ZoneInfo
    spans: tuple[tuple[int, int], ...] | None

    @classmethod
    def of(cls, hours: Sequence[str], time_zone: str) -> Timetable:
        """Return the timetable of entries such as `mon-fri 20:00-06:00`; without any, always open.

        Raises ValueError, which names the entry and the form.
        """
        spans = _weekly_spans([weekly_window(entry) for entry in hours])
        is_always = not hours or spans == ((0, _WEEK),)
        return cls(ZoneInfo(time_zone), None if is_always else spans)

    def is_open(self, at: float) -> bool:
        """Return whether the source may be asked."""
        if self.spans is None:
            return True
        second = (at + self._offset(at) + _EPOCH_TO_MONDAY) % _WEEK
        return any(start <= second < end for start, end in self.spans)

    def opens_at(self, at: float) -> float | None:
        """Return the next opening; None: it is open."""
        if self.is_open(at):
            return None
        return next((start for start, _ in self.open_spans(at, at + _HORIZON)), None)

    def closes_at(self, at: float) -> float | None:
        """Return the end of this opening; None: it is closed, or never closes."""
        if self.spans is None or not self.is_open(at):
            return None
        return next((end for _, end in self.open_spans(at, at + _HORIZON)), None)

    def open_seconds(self, start: float, end: float) -> float:
        """Return for how long it is open from `start` to `end`."""
        return sum(until - begin for begin, until in self.open_spans(start, end))

    def after_open_seconds(self, start: float, seconds: float) -> float | None:
        """Return when it will have been open for so long since `start`; None: not in ten years."""
        if not seconds <= _LONGEST_ETA:
            return None
        left = seconds
        for begin, until in self.open_spans(start, start + _LONGEST_ETA):
            if left <= until - begin:
                return begin + left
            left -= until - begin
        return None

    def day_end(self, at: float) -> float:
        """Return the first instant of the next local day."""
        after = self.local_day(at) + timedelta(days=1)
        return after.replace(tzinfo=self.zone).timestamp()

    def local_day(self, at: float) -> datetime:
        """Return midnight of the local day, without a time zone."""
        local = datetime.fromtimestamp(math.floor(at), self.zone)
        return datetime(local.year, local.month, local.day)  # noqa: DTZ001 - its zone is `zone`

    def open_spans(self, start: float, end: float) -> Iterator[Span]:
        """Return the openings between two times, each whole."""
        if self.spans is None:
            yield from [(start, end)] if end > start else []
            return
        current: Span | None = None
        for begin, until in self._pieces(start, end):
            if current is not None and begin <= current[1]:
                current = (current[0], until)
                continue
            if current is not None:
                yield current
            current = (begin, until)
        if current is not None:
            yield current

    def _pieces(self, start: float, end: float) -> Iterator[Span]:
        """Return the openings, cut where a day or the offset of the clock ends."""
        for begin, until, offset in self._segments(start, end):
            shift = offset + _EPOCH_TO_MONDAY
            week = (begin + shift) // _WEEK * _WEEK - shift
            for monday in (week, week + _WEEK):
                for first, last in self.spans or ():
                    opened = max(begin, monday + first)
                    closed = min(until, monday + last)
                    if opened < closed:
                        yield opened, closed

    def _segments(self, start: float, end: float) -> Iterator[tuple[float, float, int]]:
        """Return stretches of a day at most, each with the clock's one offset."""
        begin = start
        while begin < end:
            until = min(end, begin + _DAY)
            offset = self._offset(begin)
            if self._offset(until) != offset:
                until = min(until, self._change(begin, until))
            yield begin, until, offset
            begin = until

    def _change(self, start: float, end: float) -> float:
        """Return the first second at which the offset is no longer that of `start`."""
        offset = self._offset(start)
        before = math.floor(start)
        after = math.floor(end)
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset(middle) == offset:
                before = middle
            else:
                after = middle
        return after

    def _offset(self, at: float) -> int:
        """Return the seconds by which the local clock is ahead of UTC."""
        local = datetime.fromtimestamp(math.floor(at), UTC).astimezone(self.zone)
        offset = local.utcoffset()
        assert offset is not None
        return int(offset.total_seconds())


def eta(
    remaining_images: int, images_per_second: float, timetable: Timetable, now: float
) -> float | None:
    """Return when the last image will have come, within the timetable.

    `images_per_second`: while the source is open. None: unknown, or not in ten years.
    """
    if remaining_images <= 0:
        return now
    if not images_per_second > 0:
        return None
    return timetable.after_open_seconds(now, remaining_images / images_per_second)


def _weekly_spans(windows: Sequence[WeeklyWindow]) -> tuple[tuple[int, int], ...]:
    """Return seconds of the week, merged; a window over the end of Sunday is in two parts."""
    parts: list[tuple[int, int]] = []
    for window in windows:
        for day in window.days:
            start = (day * DAY_MINUTES + window.start) * 60
            end = (day * DAY_MINUTES + window.end) * 60
            parts.append((start, min(end, _WEEK)))
            if end > _WEEK:
                parts.append((0, end - _WEEK))
    return tuple(_merged(parts))


def _merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans without those that overlap or touch, sorted."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
