"""Decode processes; a crash or a hang is attributed to the image that caused it.

While many images wait, one process gets a few at once. A process marks an image's slot when it
begins with it, and its other images are requested again. An image that has broken a process is
tried again in a separate process, one such image at a time. So the others keep working.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from hilum.analyse.decode.process import DecodeProcess
from hilum.analyse.decode.read_error import not_read
from hilum.analyse.decode.slots import Area, Array, SlotLease, SlotMemory
from hilum.analyse.decode.worker import (
    Answer,
    Checked,
    DecodedImage,
    DecodeRequest,
    DecodeResponse,
    Prepare,
    ReadError,
    RequestEncoder,
    SlotResponse,
    SpecCheck,
    load,
    with_arrays,
)
from hilum.domain import Priority
from hilum.errors import Retry, WorkerDied
from hilum.observability import telemetry
from hilum.one_thread import outcome_of, settle

# until an image that has broken a process is tried again, while another one is tried
_BUSY_SECONDS: Final = 5.0
_TOGETHER: Final = 4  # requests in one message, at most: more save little
log = telemetry.logger("analyse")


class _Asked(NamedTuple):
    request: DecodeRequest | SpecCheck
    answer: asyncio.Future[Any]
    lease: SlotLease


class _WaitingRequest(NamedTuple):
    """An entry of the queue, sorted by the order of leaving.

    No two have the same `order`, so the fields after it are never compared.
    """

    priority: Priority
    order: int
    request: DecodeRequest | SpecCheck
    answer: asyncio.Future[Any]


class DecodePool:
    """A pool of decode processes (0: one fewer than the cores, at least one).

    `prepare` makes tensors of stored values where decode processes leave that to a device; it is
    called in a thread of its own. `load_codecs` runs in each process and returns the handler of its
    requests; a test gives another one, which must be importable there.
    """

    def __init__(
        self,
        processes: int,
        seconds_per_image: float,
        load_codecs: Callable[[], Prepare] = load,
        *,
        slot_bytes: int = 1 << 24,
        maximum_pixels: int = 0,
        prepare: Callable[[DecodeRequest, DecodedImage], Answer] | None = None,
    ) -> None:
        self._seconds = seconds_per_image
        self._prepare = prepare
        self._count = processes or max(1, (os.cpu_count() or 2) - 1)
        # Where a device prepares, a slot in page-locked memory holds an image until then. One slot
        # more than the images that work at once is enough: the next image is decoded while the
        # device works.
        self._together = _TOGETHER if prepare is None else 1
        # One more slot is for an image that is tried apart.
        self._slots = SlotMemory(
            Area(self._count * self._together + (prepare is not None) + 1, slot_bytes)
        )
        self._free: asyncio.Queue[SlotLease] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(self._count + 1, thread_name_prefix="decode")
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._waiting: asyncio.PriorityQueue[_WaitingRequest] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._questions = RequestEncoder()
        made = [
            DecodeProcess(self._slots, self._threads, load_codecs, maximum_pixels)
            for _ in range(self._count + 1)
        ]
        self._apart, *self._workers = made
        self._suspects: asyncio.Queue[tuple[DecodeRequest, asyncio.Future[Any]]] = asyncio.Queue()
        self._is_trying = False
        self._serving: list[asyncio.Task[None]] = []

    @property
    def slot_pages(self) -> Array:
        """The memory of all slots, (bytes,) uint8."""
        return self._slots.pages

    async def start(self) -> None:
        """Start all processes. Raises Retry if one cannot start."""
        await asyncio.gather(*(worker.start() for worker in self._workers))
        for index in range(self._slots.area.count):
            self._free.put_nowait(SlotLease(index, 1))
        self._serving = [asyncio.create_task(self._serve(worker)) for worker in self._workers]
        self._serving.append(asyncio.create_task(self._serve_apart()))
        for serving in self._serving:
            serving.add_done_callback(_end_with)

    async def ask(self, request: DecodeRequest, *, is_suspect: bool = False) -> Answer:
        """Return a tensor, or a reason, for each release of the request.

        Raises WorkerDied; a new process takes the dead one's place. `is_suspect`: it has broken a
        process before. Raises Retry while another such image is tried.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begin(request, answer, is_suspect=is_suspect)
        return await answer

    def begin(
        self,
        request: DecodeRequest,
        answer: asyncio.Future[Answer],
        *,
        is_suspect: bool = False,
        priority: Priority = Priority.LIVE,
    ) -> None:
        """Do as `ask` without a task: the result or the error goes into the future.

        Call it in the loop's thread. An image of a higher priority overtakes those that wait: the
        analyser may hold dozens of old images when a live one comes.
        """
        if not is_suspect:
            self._wait(priority, request, answer)
        elif self._is_trying:
            settle(
                answer,
                Retry(
                    "another image that broke a decode process is tried",
                    _BUSY_SECONDS,
                    is_outage=True,
                ),
            )
        else:
            self._is_trying = True
            self._suspects.put_nowait((request, answer))

    async def check(
        self, check: SpecCheck, on_device: Callable[[SpecCheck], Checked] | None = None
    ) -> Checked:
        """Check a spec where tensors are prepared.

        That is one of the decode processes, or the device's thread if `on_device` is given.
        """
        if on_device is not None:
            return await asyncio.get_running_loop().run_in_executor(self._device, on_device, check)
        checked: asyncio.Future[Checked] = asyncio.get_running_loop().create_future()
        self._wait(Priority.LIVE, check, checked)
        return await checked

    def _wait(
        self, priority: Priority, request: DecodeRequest | SpecCheck, answer: asyncio.Future[Any]
    ) -> None:
        self._waiting.put_nowait(_WaitingRequest(priority, next(self._order), request, answer))

    async def _serve(self, worker: DecodeProcess) -> None:
        """Finish each request, even if its caller is gone.

        The next request would otherwise get the result of this one.
        """
        again: list[_Asked] = []
        while True:
            again = await self._ask_all(worker, again or await self._next(), is_again=bool(again))

    async def _serve_apart(self) -> None:
        """Try one suspect image at a time, each in a process that ends with it."""
        while True:
            request, answer = await self._suspects.get()
            left = [_Asked(request, answer, await self._free.get())]
            is_again = False
            while left:
                left = await self._ask_all(self._apart, left, is_again=is_again)
                is_again = True
            self._is_trying = False
            await self._apart.end()

    async def _next(self) -> list[_Asked]:
        """Return the images of the highest priority that wait longest.

        Each of several processes takes half of its share of the waiting images, so that all are
        busy to the end.
        """
        first = await self._waiting.get()
        count = min(
            self._together,
            (self._waiting.qsize() + 1) // (2 * self._count if self._count > 1 else 1),
        )
        taken = [first, *(self._waiting.get_nowait() for _ in range(count - 1))]
        return [_Asked(item.request, item.answer, await self._free.get()) for item in taken]

    async def _ask_all(
        self, worker: DecodeProcess, group: list[_Asked], *, is_again: bool
    ) -> list[_Asked]:
        """Return the images to request again, after a process broke at another image."""
        left = list(group)
        try:
            await worker.send([(item.lease, self._questions.of(item.request)) for item in group])
            while left:
                for said in await worker.receive(self._seconds):
                    self._take(left.pop(0), said)
        except WorkerDied as error:
            begun = [item for item in left if self._slots.has_begun(item.lease)][-1:] or (
                left[:1] if is_again else []
            )
            self._end(begun, WorkerDied(str(error), is_named=True))
            log.warning(
                "decode_process_died",
                how=str(error),
                advice=(
                    "the image is tried apart, three times at most, and then ends as worker_crashed"
                    if begun
                    else "it was at no image; those that it had are asked for again"
                ),
            )
            return [
                _Asked(item.request, item.answer, item.lease.next)
                for item in left
                if item not in begun
            ]
        except Exception as error:  # noqa: BLE001 - any error belongs to these images; the loop decides
            worker.kill()  # it may be about to send a result
            self._end(left, error)
        return []

    def _end(self, items: Iterable[_Asked], error: Exception) -> None:
        for item in items:
            settle(item.answer, error)
            self._free.put_nowait(item.lease.next)

    def _take(self, asked: _Asked, said: DecodeResponse) -> None:
        try:
            taken = self._out_of_slot(said, asked.lease) if isinstance(said, SlotResponse) else said
            if isinstance(taken, DecodedImage):
                self._prepare_on_device(asked, taken)
                return
            settle(asked.answer, not_read(taken.number) if isinstance(taken, ReadError) else taken)
        except Exception as error:  # noqa: BLE001 - as above, of this image alone
            settle(asked.answer, error)
        self._free.put_nowait(asked.lease.next)

    def _out_of_slot(self, slotted: SlotResponse, lease: SlotLease) -> Answer | DecodedImage:
        arrays = [self._slots.read(lease, place) for place in slotted.placed]
        if isinstance(slotted.answer, DecodedImage):
            return with_arrays(slotted.answer, arrays)
        # Tensors are small, and wait for their batch longer than a slot may be held.
        return with_arrays(slotted.answer, [array.copy() for array in arrays])

    def _prepare_on_device(self, asked: _Asked, decoded: DecodedImage) -> None:
        """Prepare an image in a thread; its slot is free afterwards."""
        assert isinstance(asked.request, DecodeRequest)
        assert self._prepare is not None, (
            "ask for what is decoded only with a device that prepares it"
        )
        # The error as a value: an executor's future never ends with StopIteration, and the slot
        # would never be free again.
        preparing = asyncio.get_running_loop().run_in_executor(
            self._device, outcome_of, partial(self._prepare, asked.request, decoded)
        )
        preparing.add_done_callback(partial(self._prepared, asked))

    def _prepared(self, asked: _Asked, preparing: asyncio.Future[Answer | BaseException]) -> None:
        self._free.put_nowait(asked.lease.next)
        if not preparing.cancelled():
            settle(asked.answer, preparing.exception() or preparing.result())

    async def stop(self) -> None:
        """End all processes."""
        for serving in self._serving:
            serving.cancel()
        for worker in (self._apart, *self._workers):
            worker.kill()
        for threads in (self._threads, self._device):
            threads.shutdown(wait=False)
        self._slots.close()


def _end_with(serving: asyncio.Task[None]) -> None:
    """End the process if a serving task has died, which is a bug.

    Its images would otherwise wait forever. The supervisor starts another process.
    """
    if not serving.cancelled() and (error := serving.exception()) is not None:
        log.critical("decode_pool_broken", problem=telemetry.traceback_without_messages(error))
        raise SystemExit(1)
