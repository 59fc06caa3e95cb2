"""How batches are asked for: one after the other in a closed loop, or when they come in an open one; and what that used."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testing.accounting import Usage, snapshot

Array = np.ndarray[Any, np.dtype[Any]]
Ask = Callable[[Array], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Window:
    """One stretch of a measurement: requests by their seconds, and CPU seconds by who used them."""

    batch: int
    seconds: float
    latencies: tuple[float, ...]
    client: float
    server: float
    stub: float

    @property
    def images_per_second(self) -> float:
        """From the first request to the last answer."""
        return self.batch * len(self.latencies) / self.seconds

    def cpu_ms(self, *roles: str) -> float:
        """Milliseconds of CPU per image; of all three where no role is named."""
        used = {"client": self.client, "server": self.server, "stub": self.stub}
        return 1000 * sum(used[role] for role in roles or used) / (self.batch * len(self.latencies))

    def latency_ms(self, percentile: float) -> float:
        """Of one request."""
        return 1000 * float(np.percentile(self.latencies, percentile))


class Meter:
    """CPU of this process and of the tritonserver `server_pid` with its stubs, between `start` and `stop`. 0: there is none."""

    def __init__(self, server_pid: int = 0) -> None:
        self._pid = server_pid
        self.start()

    def start(self) -> None:
        """From now on."""
        self._server = self._look()
        self._client = time.process_time()
        self._began = time.perf_counter()

    def stop(self, batch: int, latencies: Sequence[float]) -> Window:
        """Until now."""
        seconds = time.perf_counter() - self._began
        client = time.process_time() - self._client
        server, stub = (
            after - before for after, before in zip(self._look(), self._server, strict=True)
        )
        return Window(batch, seconds, tuple(latencies), client, server, stub)

    def _look(self) -> tuple[float, float]:
        use = snapshot(self._pid) if self._pid else {}
        return (
            use.get("tritonserver", Usage()).cpu_seconds,
            use.get("triton-stub", Usage()).cpu_seconds,
        )


def bare(
    engine: Callable[[Array], object], batch: Array, seconds: float, at_least: int = 2
) -> Window:
    """The engine in this process, one call after the other."""
    meter = Meter()
    latencies = list[float]()
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or len(latencies) < at_least:
        began = time.perf_counter()
        engine(batch)
        latencies.append(time.perf_counter() - began)
    return meter.stop(len(batch), latencies)


async def closed(
    ask: Ask, batch: Array, in_flight: int, seconds: float, server_pid: int = 0, at_least: int = 2
) -> Window:
    """So many requests under way, the next when one is answered."""
    latencies: list[float] = []
    meter = Meter(server_pid)
    ends = time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        while time.perf_counter() < ends or len(latencies) < at_least * in_flight:
            began = time.perf_counter()
            await ask(batch)
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return meter.stop(len(batch), latencies)


async def opened(
    ask: Ask, batch: Array, per_second: float, seconds: float, seed: int, server_pid: int = 0
) -> Window:
    """Requests at the times of a Poisson process, whatever became of those before.

    A latency begins at the intended time.
    """
    due = schedule(per_second, seconds, seed)
    latencies = list[float]()
    meter = Meter(server_pid)
    began = time.perf_counter()

    async def at(moment: float) -> None:
        await asyncio.sleep(max(0.0, began + moment - time.perf_counter()))
        await ask(batch)
        latencies.append(time.perf_counter() - began - moment)

    await asyncio.gather(*(at(moment) for moment in due))
    return meter.stop(len(batch), latencies)


def schedule(per_second: float, seconds: float, seed: int) -> list[float]:
    """Seconds after the start, in order: gaps are exponential; one at least."""
    draws = random.Random(seed)
    moments = [0.0]
    while (following := moments[-1] + draws.expovariate(per_second)) < seconds:
        moments.append(following)
    return moments
