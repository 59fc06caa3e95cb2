"""What is looked at while a scenario runs.

Memory and CPU of Hilum's processes by role, and its queues.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from load_tests.load import scrapes
from load_tests.load.scrapes import Scrape
from testing.accounting import Accountant, Snapshot
from testing.repeater import Repeater

_EVERY_SECONDS = 3.0  # a scrape costs Hilum some 20 ms of CPU
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; `at` as `time.monotonic`."""

    at: float
    memory_mib: dict[str, float]
    queues: dict[str, float]

    def as_json(self, begin: float) -> dict[str, Any]:
        """For the result; seconds since the load began."""
        memory = {role: round(size, 1) for role, size in self.memory_mib.items()}
        return {"second": round(self.at - begin, 1), "memory_mib": memory, "queues": self.queues}


class Watch(Repeater):
    """A context manager that looks every three seconds.

    Of a Hilum elsewhere there is no accountant, and perhaps no address of metrics.
    """

    def __init__(
        self,
        metrics_url: str | None,
        accountant: Accountant | None,
        every_seconds: float = _EVERY_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(every_seconds)
        self.samples: list[Sample] = []
        self._url = metrics_url
        self._accountant = accountant
        self._headers = headers or {}

    def scrape(self) -> Scrape:
        """Hilum's metrics now; empty where they cannot be had, which must not end a run."""
        if self._url is None:
            return {}
        try:
            return scrapes.parse(httpx.get(self._url, headers=self._headers, timeout=10).text)
        except httpx.TransportError:
            return {}

    def used(self) -> Snapshot:
        """CPU by role since the processes started."""
        return self._accountant.snapshot() if self._accountant else {}

    def look(self) -> None:
        """Take a sample."""
        memory = {role: use.rss_bytes / _MIB for role, use in self.used().items()}
        self.samples.append(Sample(time.monotonic(), memory, scrapes.queues(self.scrape())))


def mean_queues(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """`stage state` → mean and largest number of items."""
    names = sorted({name for sample in samples for name in sample.queues})
    lengths = {
        name: [sample.queues.get(name, 0.0) for sample in samples if sample.queues]
        for name in names
    }
    return {
        name: {"mean": sum(values) / len(values), "max": max(values)}
        for name, values in lengths.items()
    }


def memory_growth(samples: Sequence[Sample]) -> dict[str, float]:
    """Role → MiB a minute, a straight line through the samples; `all` is their sum.

    Empty with too few samples to say so.
    """
    if len(samples) < 5:
        return {}
    moments = np.array([sample.at for sample in samples]) / 60
    roles = sorted({role for sample in samples for role in sample.memory_mib})
    slopes = {
        role: _slope(moments, [sample.memory_mib.get(role, 0.0) for sample in samples])
        for role in roles
    }
    return {**slopes, "all": sum(slopes.values())} if slopes else {}


def _slope(moments: Any, values: Sequence[float]) -> float:  # noqa: ANN401 - an array
    return float(np.polyfit(moments - moments[0], values, 1)[0])
