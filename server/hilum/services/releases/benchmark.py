"""The speed of one release on the Tritons of an installation.

It is measured in a closed loop of its canary, with the analyser's own client.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hilum.analyse import credentials
from hilum.analyse.inference.answers import Array
from hilum.analyse.inference.endpoints import Endpoints
from hilum.domain import Release
from hilum.errors import ConfigurationError, Retry
from hilum.models.known_answers.canary import Canary, read_canary
from hilum.models.manifest.catalogue import choose, load_catalogue
from hilum.settings import Settings
from hilum.triton.server import EmbeddedTriton


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of one batch size.

    Images a second are measured with several requests in flight, milliseconds with a single
    request.
    """

    batch: int
    images_per_second: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The results of a measurement, its endpoints, and its number of requests in flight."""

    release: str
    endpoints: tuple[str, ...]
    in_flight: int
    speeds: tuple[Speed, ...]


def bench(settings: Settings, release_id: str, seconds: float) -> Bench:
    """Measure batch 1, 4 and the largest, for so many seconds each.

    Raises ConfigurationError: unknown, not built, not served, wrong results.
    """
    release = choose(load_catalogue(settings.manifests_dir, [release_id]), [release_id])[release_id]
    canary = read_canary(release, settings.built_dir)
    with _served(settings, release) as urls:
        speeds = asyncio.run(_measured(settings, urls, release, canary, seconds))
    return Bench(
        release.id, tuple(urls), settings.analyse.batches_in_flight * len(urls), tuple(speeds)
    )


@contextmanager
def _served(settings: Settings, release: Release) -> Iterator[Mapping[str, str]]:
    """Yield the Tritons of the settings, or an embedded one for the duration of the measurement."""
    if addresses := settings.triton.addresses:
        yield {address: address for address in addresses}
        return
    limits = settings.triton
    with tempfile.TemporaryDirectory(prefix="hilum-bench-") as folder:
        triton = EmbeddedTriton(
            settings.built_dir,
            Path(folder),
            [release.triton_name],
            limits.start_timeout_seconds,
            limits.exit_timeout_seconds,
        )
        try:
            yield {"embedded": triton.start()}
        finally:
            triton.stop()


async def _measured(
    settings: Settings, urls: Mapping[str, str], release: Release, canary: Canary, seconds: float
) -> list[Speed]:
    in_flight = settings.analyse.batches_in_flight * len(urls)
    memory = settings.triton.shared_memory
    secured = credentials.read(settings.triton)
    gateway = Endpoints(
        urls, settings.analyse.deadline_seconds, shares_memory=memory, credentials=secured
    )
    try:
        if (problem := await gateway.check_canary(release, canary)) is not None:
            raise ConfigurationError([problem])
        sizes = sorted({1, min(4, release.max_batch), release.max_batch})
        return [
            await _speed(
                gateway, release, np.repeat(canary.image, size, axis=0), seconds / 2, in_flight
            )
            for size in sizes
        ]
    except Retry as error:
        raise ConfigurationError([error.detail]) from error
    finally:
        await gateway.close()


async def _speed(
    gateway: Endpoints, release: Release, batch: Array, seconds: float, in_flight: int
) -> Speed:
    await gateway.infer(release, batch)  # the first of a size is slower: engines prepare for it
    alone, _ = await _loop(gateway, release, batch, seconds, 1)
    together, took = await _loop(gateway, release, batch, seconds, in_flight)
    p50, p95 = (1000 * float(np.percentile(alone, percentile)) for percentile in (50, 95))
    return Speed(len(batch), len(together) * len(batch) / took, p50, p95)


async def _loop(
    gateway: Endpoints, release: Release, batch: Array, seconds: float, in_flight: int
) -> tuple[list[float], float]:
    """Return the seconds of each request, and of all."""
    found: list[float] = []
    began = time.perf_counter()

    async def one_after_the_other() -> None:
        while not found or time.perf_counter() - began < seconds:
            sent = time.perf_counter()
            await gateway.infer(release, batch)
            found.append(time.perf_counter() - sent)

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return found, time.perf_counter() - began
