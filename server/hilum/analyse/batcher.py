"""Batches across images and studies, for one release.

A batch leaves when the engine is free or the batch is full: waiting for more while the engine idles gains nothing, and while it
works the next batch fills by itself. Two in flight keep it busy during the hop.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from hilum import telemetry, tracing
from hilum.analyse.futures import settle
from hilum.domain import Lane, Release
from hilum.errors import Retry

Array = np.ndarray[Any, np.dtype[Any]]


class Inference(Protocol):
    """(B, L) logits and, where the release has them, (B, L, h, w) class activation maps."""

    @property
    def logits(self) -> Array:
        """(B, L) float32."""

    @property
    def cam(self) -> Array | None:
        """(B, L, h, w) float16, or None."""

    @property
    def member_logits(self) -> Array | None:
        """(B, k, L) float32 of an ensemble, or None."""


class Gateway(Protocol):
    """What carries a batch to the engine. Raises Retry when it may work later."""

    async def infer(self, release: Release, batch: Sequence[Array]) -> Inference:
        """(C, H, W) of each image → logits and class activation maps."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """One image's share of a batch: (L,) logits, (L, h, w) maps, (k, L) logits of members, the batch's wall time and size."""

    logits: Array
    cam: Array | None
    seconds: float
    batch_size: int
    member_logits: Array | None = None


class _Waiting(NamedTuple):
    """In the order in which they leave: no two have the same `order`, so what follows is never compared."""

    lane: Lane
    order: int
    tensor: Array
    answer: asyncio.Future[Inferred]
    place: tracing.Place | None  # whose tensor it is


class Batcher:
    """Serves one release until cancelled; urgent images overtake."""

    def __init__(self, release: Release, gateway: Gateway, batches_in_flight: int) -> None:
        self._release, self._gateway = release, gateway
        self._slots = asyncio.Semaphore(batches_in_flight)
        self._queue: asyncio.PriorityQueue[_Waiting] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._sending: set[asyncio.Task[None]] = set()

    async def infer(self, tensor: Array, lane: Lane) -> Inferred:
        """(C, H, W) → its share of the batch that it goes with. Raises what the gateway raises."""
        answer: asyncio.Future[Inferred] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Waiting(lane, next(self._order), tensor, answer, tracing.here()))
        return await answer

    def close(self) -> None:
        """Take no more: what waits is to be tried again. What is on its way is finished."""
        while not self._queue.empty():
            settle(self._queue.get_nowait().answer, Retry(f"{self._release.id} is being unloaded", after_seconds=1.0, is_outage=True))

    async def run(self) -> None:
        """Form and send batches for ever."""
        while True:
            await self._slots.acquire()  # before the queue: whoever is most urgent when the slot comes free goes first
            batch = [await self._queue.get()]
            while len(batch) < self._release.max_batch and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            task = asyncio.create_task(self._send(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[_Waiting]) -> None:
        started = time.perf_counter()
        spans = _Spans([item.place for item in batch if item.place is not None], self._release.id, len(batch)) if tracing.is_on() else None
        try:
            inference = await self._gateway.infer(self._release, [item.tensor for item in batch])
            seconds = time.perf_counter() - started
            shares = [_share(inference, index, seconds, len(batch)) for index in range(len(batch))]
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the images of this batch; the loop decides
            for item in batch:
                settle(item.answer, error)
            return
        finally:
            self._slots.release()
            if spans is not None:
                spans.write()
        telemetry.INFER_SECONDS.labels(self._release.id).observe(seconds)
        telemetry.BATCH_SIZE.labels(self._release.id).observe(len(batch))
        for item, share in zip(batch, shares, strict=True):
            settle(item.answer, share)


class _Spans:
    """One batch in the traces of its images. A request has one parent: Triton's own spans go into the first one's trace."""

    def __init__(self, above: Sequence[tracing.Place], release: str, batch_size: int) -> None:
        self._began = time.time()
        self._said: tracing.Attributes = {"release": release, "batch_size": batch_size}
        self._spans = [(tracing.new_place(place.trace), place.span) for place in above]
        tracing.enter(self._spans[0][0] if self._spans else None)

    def write(self) -> None:
        ended = time.time()
        for index, (place, parent) in enumerate(self._spans):
            links = [self._spans[0][0]] if index else []
            tracing.write(tracing.Ended(place, parent, "infer", self._began, ended, "client", self._said, links=links))


def _share(inference: Inference, index: int, seconds: float, batch_size: int) -> Inferred:
    """One image's. Raises IndexError where the answer is shorter than the batch."""
    cam = None if inference.cam is None else inference.cam[index]
    members = None if inference.member_logits is None else inference.member_logits[index]
    return Inferred(inference.logits[index], cam, seconds, batch_size, members)
