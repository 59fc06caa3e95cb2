"""The end of a request: after its time, or when Hilum stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from hilum.web.problems import HttpError

TIMED_OUT: Final = "timed out"
"""The status of a request that was not done in its time."""
_LOOK_SECONDS: Final = 0.2


class TimeLimit:
    """A number of seconds from now, and perhaps an event that ends the request sooner.

    `setting`: the setting that people change for it.
    """

    def __init__(
        self,
        seconds: float,
        stop: threading.Event | None = None,
        setting: str = "request_seconds",
    ) -> None:
        self.seconds = seconds
        self._setting = setting
        self._deadline = time.monotonic() + seconds
        self._stop = stop

    @property
    def is_stopped(self) -> bool:
        """Whether Hilum ends it."""
        return self._stop is not None and self._stop.is_set()

    @property
    def is_over(self) -> bool:
        """Whether it must end now."""
        return self.is_stopped or time.monotonic() >= self._deadline

    @property
    def word(self) -> str:
        """How it ended the request; empty: it did not."""
        if self.is_stopped:
            return "stopped"
        return TIMED_OUT if self.is_over else ""

    @property
    def remaining(self) -> float:
        """Seconds until its end; never 0, because that would be no limit to some calls."""
        return max(0.001, self._deadline - time.monotonic())

    def problem(self) -> HttpError | None:
        """Return the error when it is over; None: it is not."""
        if self.is_stopped:
            return HttpError("Hilum stopped the request")
        if self.is_over:
            return HttpError(
                f"the request was not done within its {self.seconds:g} s ({self._setting})"
            )
        return None

    def check(self) -> None:
        """Raise HttpError when it is over."""
        problem = self.problem()
        if problem is not None:
            raise problem

    @contextmanager
    def watch(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` from another thread at the end, so that no read waits beyond it."""
        is_done = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(is_done, interrupt), name="time-limit", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            is_done.set()
            watcher.join()

    def _watch(self, is_done: threading.Event, interrupt: Callable[[], None]) -> None:
        while not is_done.wait(_LOOK_SECONDS):
            if self.is_over:
                interrupt()  # again and again: a new connection may have been made meanwhile
