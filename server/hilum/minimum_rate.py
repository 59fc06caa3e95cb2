"""The minimum rate of a sender.

A byte now and then is never silence, and would hold a connection and half an object forever.
"""

from __future__ import annotations


class Pace:
    """Judges a sender from time to time.

    Too slow is two windows one after the other with something in them, and too little.

    Two, because a sender may pause within one for nearly as long as silence is borne. A window with
    nothing is silence, or the time in which we answer: neither is judged here.
    """

    def __init__(self, minimum_bytes_per_second: int, window_seconds: float) -> None:
        self._minimum = minimum_bytes_per_second
        self._window_seconds = window_seconds
        self._whole = 0
        self._began = float("-inf")
        self._bytes_before = 0
        self._slow_windows = 0

    def is_too_slow(self, now: float, received_bytes: int, whole: int = 0) -> bool:
        """Return whether two windows in a row were below the minimum.

        `now`: seconds; `received_bytes` and `whole`, complete messages, since the beginning.
        """
        if whole != self._whole or self._began == float("-inf"):
            self._whole = whole
            self.begin_anew(now, received_bytes)
        elif (seconds := now - self._began) >= self._window_seconds:
            came = received_bytes - self._bytes_before
            slow_windows = self._slow_windows + 1 if 0 < came < self._minimum * seconds else 0
            self.begin_anew(now, received_bytes)
            self._slow_windows = slow_windows
        return self._slow_windows >= 2

    def begin_anew(self, now: float, received_bytes: int) -> None:
        """Start a new window: a message is complete, or the delay was ours."""
        self._began = now
        self._bytes_before = received_bytes
        self._slow_windows = 0
