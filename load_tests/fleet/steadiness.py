"""When the fleet works as before: images are acknowledged, and no study waits for its report."""

from __future__ import annotations

import time
from typing import Self

from load_tests.fleet.fleet import Fleet
from load_tests.proof.router import Router
from load_tests.proof.street.street import wait_for
from testing.repeater import Repeater

# A study is read and reported within some five seconds here: two of them are the quiet period.
LATE_SECONDS = 10.0
_LOOK_SECONDS = 0.25
_CALM_SECONDS = 12.0


class Steadiness(Repeater):
    """Looks four times a second, in a thread. A context manager.

    Unsteady is: a study has waited for its report for 10 s, or no image was acknowledged for 10 s.
    """

    def __init__(self, fleet: Fleet, router: Router) -> None:
        super().__init__(_LOOK_SECONDS)
        self.longest_silence = 0.0
        self.longest_wait = 0.0
        self._fleet = fleet
        self._router = router
        self._begun_at = time.monotonic()
        self._unsteady_at = self._begun_at
        self._looked_at = self._begun_at

    def __enter__(self) -> Self:
        """The fault happens now."""
        self._begun_at = self._unsteady_at = time.monotonic()
        return super().__enter__()

    @property
    def seconds(self) -> float:
        """From the beginning to the last unsteady moment; 0: there was none."""
        return round(self._unsteady_at - self._begun_at, 1)

    def is_calm(self) -> bool:
        """Whether it has been steady for 12 s."""
        return self._looked_at - self._unsteady_at > _CALM_SECONDS

    def wait(self, seconds: float) -> None:
        """Until it has been steady for 12 s. Raises NotQuiet."""
        wait_for(
            self.is_calm,
            seconds,
            lambda: f"steady; {len(self._fleet.unreported())} studies without a report",
        )

    def look(self) -> None:
        """Note whether it is steady now."""
        now = time.monotonic()
        waits = self._fleet.unreported()
        silence = now - max(self._router.books.acknowledged_at.values(), default=self._begun_at)
        self.longest_wait = max(self.longest_wait, *waits, 0.0)
        self.longest_silence = max(self.longest_silence, silence)
        if silence > LATE_SECONDS or max(waits, default=0.0) > LATE_SECONDS:
            self._unsteady_at = now
        self._looked_at = now
