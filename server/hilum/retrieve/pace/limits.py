"""The pace of a source: whether it may be asked now, and if not, until when and why.

Each rest is only a time, so a person or a stop interrupts it. A limit is checked between two
requests: one request may exceed it by its own images, and the next waits for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hilum.retrieve.pace.slow_down import SlowDown
from hilum.retrieve.pace.source_breaker import SourceBreaker
from hilum.retrieve.pace.timetable import Timetable
from hilum.settings.sources import SourceSection

_LOOK_SECONDS: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason to ask for nothing now. `until`: seconds since the epoch, when to look again.

    `cause`: a word for metrics: hours, daily, rate, slow or outage.
    """

    until: float
    reason: str
    cause: str


class SourcePace:
    """How fast one source may be asked, for any number of threads.

    `images_today`: images that came from it today, by the day of its time zone, before a restart.
    """

    def __init__(
        self,
        settings: SourceSection,
        timetable: Timetable,
        clock: Callable[[], float] = time.time,
        images_today: int = 0,
    ) -> None:
        self._settings = settings
        self._timetable = timetable
        self._clock = clock
        self._lock = threading.Lock()
        self._day = timetable.local_day(clock())
        self._images_today = images_today
        self._rested = _Rest()
        self._spread = _Rest()
        self._slow_down = SlowDown(settings.slow_down_factor)
        self._slow = _Rest()
        self._slow_reason = ""
        self._breaker = SourceBreaker()

    def closed(self) -> Wait | None:
        """Return the longest wait; None: the source may be asked for one thing now."""
        now = self._clock()
        with self._lock:
            waits = [*self._waits(now)]
            if waits:
                return max(waits, key=lambda wait: wait.until)
            # only now, because it gives a permit for the one probe
            until = self._breaker.closed_until(now)
            return None if until is None else Wait(until, self._breaker.reason, "outage")

    def ended(self, images: int, seconds: float, *, is_outage: bool = False) -> None:
        """Count a request that has ended: the images that came, and how long it ran."""
        now = self._clock()
        with self._lock:
            self._count_today(now, images)
            share = self._settings.utilisation
            self._rested.begin(now, max(0.0, seconds) * (1 / share - 1))
            if self._settings.images_per_second:
                due = images / self._settings.images_per_second - max(0.0, seconds)
                self._spread.begin(now, due)
            self._breaker.ended(now, is_outage=is_outage)
            if rest := self._slow_down.ended(images, seconds):
                self._slow.begin(now, rest)
                self._slow_reason = self._slow_down.reason

    @property
    def images_today(self) -> int:
        """Images that came today, by the day of the source's time zone."""
        with self._lock:
            self._count_today(self._clock(), 0)
            return self._images_today

    def _waits(self, now: float) -> list[Wait]:
        """Return each limit that holds now, but for an outage."""
        settings = self._settings
        found = [self._hours(now), self._daily(now)]
        for rest, cause, reason in (
            (self._rested, "rate", f"rest after a request (utilisation: {settings.utilisation:g})"),
            (
                self._spread,
                "rate",
                f"at most {settings.images_per_second:g} images/s (images_per_second)",
            ),
            (self._slow, "slow", self._slow_reason),
        ):
            until = rest.until(now)
            found.append(None if until is None else Wait(until, reason, cause))
        return [wait for wait in found if wait is not None]

    def _hours(self, now: float) -> Wait | None:
        if self._timetable.is_open(now):
            return None
        opens = self._timetable.opens_at(now)
        return Wait(
            now + _LOOK_SECONDS if opens is None else opens, "outside the source's hours", "hours"
        )

    def _daily(self, now: float) -> Wait | None:
        self._count_today(now, 0)
        limit = self._settings.daily_images
        if not limit or self._images_today < limit:
            return None
        reason = f"{self._images_today} images came today (daily_images: {limit})"
        return Wait(self._timetable.day_end(now), reason, "daily")

    def _count_today(self, now: float, images: int) -> None:
        day = self._timetable.local_day(now)
        if day != self._day:
            self._day = day
            self._images_today = 0
        self._images_today += images


class _Rest:
    """A time in which nothing is asked. It ends at once when the clock is set back before it."""

    def __init__(self) -> None:
        self._began = 0.0
        self._until = 0.0

    def begin(self, now: float, seconds: float) -> None:
        """Rest from now on; a rest that still runs is prolonged."""
        if seconds <= 0:
            return
        start = self.until(now) or now
        self._began = now
        self._until = start + seconds

    def until(self, now: float) -> float | None:
        """Return its end; None: there is none."""
        return self._until if self._began <= now < self._until else None
