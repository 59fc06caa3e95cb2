"""One answer for all requests of the same second, so that an expensive answer is made once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

_THREADS: Final = CapacityLimiter(
    4
)  # of their own: as many as there are such answers, and to spare
T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """Of a function that blocks, and that runs once at a time. For one event loop."""

    def __init__(
        self, make: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._clock = clock
        self._lock = asyncio.Lock()
        self._made: tuple[T, float] | None = None

    async def get(self) -> T:
        """The answer, at most so many seconds old."""
        async with self._lock:
            if self._made is None or self._clock() - self._made[1] >= self._seconds:
                self._made = await run_sync(self._make, limiter=_THREADS), self._clock()
            return self._made[0]
