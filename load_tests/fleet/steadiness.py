"""When the fleet works as before: images are acknowledged, and no study waits for its report."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from load_tests.fleet.fleet import Fleet
from load_tests.proof.router import Router
from load_tests.proof.street.street import wait_for

# A study is read and reported within some five seconds here: two of them are the quiet period.
LATE_SECONDS = 10.0
_LOOK_SECONDS = 0.25
_CALM_SECONDS = 12.0


class Steadiness:
    """Looks four times a second, in a thread. A context manager.

    Unsteady is: a study has waited for its report for 10 s, or no image was acknowledged for 10 s.
    """

    def __init__(self, fleet: Fleet, router: Router) -> None:
        self.longest_silence = 0.0
        self.longest_wait = 0.0
        self._fleet = fleet
        self._router = router
        self._begun_at = time.monotonic()
        self._unsteady_at = self._begun_at
        self._looked_at = self._begun_at
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="steadiness", daemon=True)

    def __enter__(self) -> Self:
        """The fault happens now."""
        self._begun_at = self._unsteady_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

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

    def _follow(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        waits = self._fleet.unreported()
        silence = now - max(self._router.books.acknowledged_at.values(), default=self._begun_at)
        self.longest_wait = max(self.longest_wait, *waits, 0.0)
        self.longest_silence = max(self.longest_silence, silence)
        if silence > LATE_SECONDS or max(waits, default=0.0) > LATE_SECONDS:
            self._unsteady_at = now
        self._looked_at = now
