"""Notices that a source needs longer for an image than it did at first, and sets a rest."""

from __future__ import annotations

from collections import deque
from typing import Final

from hilum.backoff import Backoff

_IMAGES: Final = 20
# Below this, the differences are those of our own machine.
_SHORTEST_SECONDS: Final = 0.25
_RESTS: Final = Backoff(300.0, 1800.0)


class SlowDown:
    """Compares the last 20 images or more with the first 20.

    `factor`: how many times longer is too slow; 0: never.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._first_images = 0
        self._first_seconds = 0.0
        self._last: deque[tuple[int, float]] = deque()
        self._rests = 0
        self.reason = ""

    def ended(self, images: int, seconds: float) -> float:
        """Count a request; return the seconds of rest that it causes, 0: none.

        Requests without an image say nothing about the time for one.
        """
        if not self._factor or images <= 0:
            return 0.0
        if self._first_images < _IMAGES:
            self._first_images += images
            self._first_seconds += seconds
            return 0.0
        self._last.append((images, seconds))
        counted = sum(number for number, _ in self._last)
        while counted - self._last[0][0] >= _IMAGES:
            counted -= self._last.popleft()[0]
        return self._judge(counted) if counted >= _IMAGES else 0.0

    def _judge(self, counted: int) -> float:
        now = sum(seconds for _, seconds in self._last) / counted
        first = max(_SHORTEST_SECONDS, self._first_seconds / self._first_images)
        if now <= self._factor * first:
            self._rests = 0
            return 0.0
        self._rests += 1
        self._last.clear()
        rest = _RESTS.after(self._rests)
        self.reason = (
            f"the source needs {now:.2g} s for an image, and needed {first:.2g} s at first"
            f" (slow_down_factor: {self._factor:g}): a rest of {rest / 60:.0f} minutes"
        )
        return rest
