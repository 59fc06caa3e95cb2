"""Batches across images and studies, for one release.

A batch leaves when the engine is free or the batch is full. Waiting for more images while the
engine is idle gains nothing; while it works, the next batch fills by itself. Two batches in flight
keep it busy during the transfer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from hilum.domain import Priority, Release
from hilum.errors import Retry
from hilum.observability import telemetry, tracing
from hilum.one_thread import settle

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
    """The interface to the engine. Raises Retry when it may work later."""

    async def infer(self, release: Release, batch: Sequence[Array]) -> Inference:
        """Return logits and class activation maps for the (C, H, W) of each image."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """One image's share of a batch: (L,) logits, (L, h, w) maps, (k, L) logits of members.

    `seconds` and `batch_size` are those of the batch.
    """

    logits: Array
    cam: Array | None
    seconds: float
    batch_size: int
    member_logits: Array | None = None


class _Waiting(NamedTuple):
    """An entry of the queue, sorted by the order of leaving.

    No two have the same `order`, so the fields after it are never compared.
    """

    priority: Priority
    order: int
    tensor: Array
    answer: asyncio.Future[Inferred]
    place: tracing.SpanParent | None  # of the image with this tensor


class Batcher:
    """The queue of one release, served until cancelled; urgent images overtake."""

    def __init__(self, release: Release, gateway: Gateway, batches_in_flight: int) -> None:
        self._release = release
        self._gateway = gateway
        self._slots = asyncio.Semaphore(batches_in_flight)
        self._queue: asyncio.PriorityQueue[_Waiting] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._sending: set[asyncio.Task[None]] = set()

    async def infer(self, tensor: Array, priority: Priority) -> Inferred:
        """Return the share of a batch for a (C, H, W) tensor. Raises the gateway's errors."""
        answer: asyncio.Future[Inferred] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(
            _Waiting(priority, next(self._order), tensor, answer, tracing.here())
        )
        return await answer

    def close(self) -> None:
        """Take no more images: waiting ones raise Retry, batches in flight are finished."""
        while not self._queue.empty():
            settle(
                self._queue.get_nowait().answer,
                Retry(f"{self._release.id} is being unloaded", after_seconds=1.0, is_outage=True),
            )

    async def run(self) -> None:
        """Form and send batches, forever."""
        while True:
            # before the queue: the most urgent image when the slot comes free goes first
            await self._slots.acquire()
            batch = [await self._queue.get()]
            while len(batch) < self._release.max_batch and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            task = asyncio.create_task(self._send(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[_Waiting]) -> None:
        started = time.perf_counter()
        spans = (
            _Spans(
                [item.place for item in batch if item.place is not None],
                self._release.id,
                len(batch),
            )
            if tracing.is_on()
            else None
        )
        try:
            inference = await self._gateway.infer(self._release, [item.tensor for item in batch])
            seconds = time.perf_counter() - started
            shares = [_share(inference, index, seconds, len(batch)) for index in range(len(batch))]
        except Exception as error:  # noqa: BLE001 - any error belongs to the images of this batch; the loop decides
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
    """The spans of one batch in the traces of its images.

    A request has one parent: Triton's own spans go into the first one's trace.
    """

    def __init__(self, above: Sequence[tracing.SpanParent], release: str, batch_size: int) -> None:
        self._began = time.time()
        self._said: tracing.Attributes = {"release": release, "batch_size": batch_size}
        self._spans = [(tracing.new_place(place.trace), place.span) for place in above]
        tracing.enter(self._spans[0][0] if self._spans else None)

    def write(self) -> None:
        ended = time.time()
        for index, (place, parent) in enumerate(self._spans):
            links = [self._spans[0][0]] if index else []
            tracing.write(
                tracing.FinishedSpan(
                    place, parent, "infer", self._began, ended, "client", self._said, links=links
                )
            )


def _share(inference: Inference, index: int, seconds: float, batch_size: int) -> Inferred:
    """Return one image's share. Raises IndexError where the result is shorter than the batch."""
    cam = None if inference.cam is None else inference.cam[index]
    members = None if inference.member_logits is None else inference.member_logits[index]
    return Inferred(inference.logits[index], cam, seconds, batch_size, members)
