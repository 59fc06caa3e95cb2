"""Pauses between tries of something that fails again and again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

_DOUBLINGS: Final = 30  # two to the power of thousands of failures is no float


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from the first to the longest, in seconds.

    `jitter` is the part by which each varies, so that a queue does not try all at once.
    """

    first_seconds: float
    longest_seconds: float
    jitter: float = 0.0

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, _DOUBLINGS)
        pause = min(self.longest_seconds, doubled)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - jitter, not a secret


RESTART: Final = Backoff(2.0, 30.0)
"""Of a process that ends, before the supervisor starts it again."""
