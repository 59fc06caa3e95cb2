"""Decode processes, one request at a time each, so that a crash or a hang names the image that caused it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from hilum import telemetry
from hilum.analyse.decode_process import DecodeProcess
from hilum.analyse.futures import settle
from hilum.analyse.slots import Area, Array, Lease, SlotMemory
from hilum.analyse.worker import Answer, Checked, Decoded, Prepare, Questions, Request, Slotted, SpecCheck, load, with_arrays
from hilum.errors import WorkerDied

log = telemetry.logger("analyse")


class DecodePool:
    """As many decode processes as asked for (0: one fewer than the cores, at least one).

    `prepare` makes tensors of stored values where decode processes leave that to a device; it is called in a thread of its own.
    `load_codecs` runs in each process and gives what answers its requests; a test gives another one, which must be importable there.
    """

    def __init__(
        self,
        processes: int,
        seconds_per_image: float,
        load_codecs: Callable[[], Prepare] = load,
        *,
        slot_bytes: int = 1 << 24,
        prepare: Callable[[Request, Decoded], Answer] | None = None,
    ) -> None:
        self._seconds, self._prepare = seconds_per_image, prepare
        self._count = processes or max(1, (os.cpu_count() or 2) - 1)
        # One more than work at once where a device prepares: the next image is decoded while it works.
        self._slots = SlotMemory(Area(self._count + (prepare is not None), slot_bytes))
        self._free: asyncio.Queue[Lease] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="decode")
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._asked: asyncio.Queue[tuple[Request | SpecCheck, asyncio.Future[Any]]] = asyncio.Queue()
        self._questions = Questions()
        self._workers = [DecodeProcess(self._slots, self._threads, load_codecs) for _ in range(self._count)]
        self._serving: list[asyncio.Task[None]] = []

    @property
    def slot_pages(self) -> Array:
        """The memory of all slots, (bytes,) uint8."""
        return self._slots.pages

    async def start(self) -> None:
        """Start all processes. Raises Retry if one cannot start."""
        await asyncio.gather(*(worker.start() for worker in self._workers))
        for index in range(self._slots.area.count):
            self._free.put_nowait(Lease(index, 1))
        self._serving = [asyncio.create_task(self._serve(worker)) for worker in self._workers]

    async def ask(self, request: Request) -> Answer:
        """A tensor, or a reason, for each release of the request. Raises WorkerDied; a new process takes the dead one's place."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begin(request, answer)
        return await answer

    def begin(self, request: Request, answer: asyncio.Future[Answer]) -> None:
        """`ask` without a task: the answer, or what it raises, goes there. In the loop's thread."""
        self._asked.put_nowait((request, answer))

    async def check(self, check: SpecCheck, on_device: Callable[[SpecCheck], Checked] | None = None) -> Checked:
        """Where tensors are prepared: in one of the decode processes, or, where `on_device` does it, in the device's thread."""
        if on_device is not None:
            return await asyncio.get_running_loop().run_in_executor(self._device, on_device, check)
        checked: asyncio.Future[Checked] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((check, checked))
        return await checked

    async def _serve(self, worker: DecodeProcess) -> None:
        """One request after the other, each to its end, also if nobody waits any more: else the next would get the answer to this one."""
        while True:
            request, answer = await self._asked.get()
            lease = await self._free.get()
            try:
                taken = await self._taken(worker, request, lease)
                if isinstance(taken, Decoded):
                    self._prepare_on_device(request, taken, lease, answer)
                    continue
                settle(answer, taken)
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to this image; the loop decides
                settle(answer, error)
            self._give_back(lease)

    async def _taken(self, worker: DecodeProcess, request: Request | SpecCheck, lease: Lease) -> Answer | Decoded | Checked:
        question = self._questions.of(request, lease) if isinstance(request, Request) else request
        try:
            answer = await worker.ask(question, self._seconds)
        except WorkerDied as error:
            log.warning(
                "decode_process_died",
                how=str(error),
                advice="the image is tried alone, three times at most, and then ends as worker_crashed",
            )
            raise
        return self._out_of_slot(answer, lease) if isinstance(answer, Slotted) else answer

    def _out_of_slot(self, slotted: Slotted, lease: Lease) -> Answer | Decoded:
        arrays = [self._slots.read(lease, place) for place in slotted.placed]
        if isinstance(slotted.answer, Decoded):
            return with_arrays(slotted.answer, arrays)
        # Tensors are small, and wait for their batch longer than a slot may be held.
        return with_arrays(slotted.answer, [array.copy() for array in arrays])

    def _prepare_on_device(self, request: Request | SpecCheck, decoded: Decoded, lease: Lease, answer: asyncio.Future[Answer]) -> None:
        """In a thread; the slot is free when it is done."""
        assert isinstance(request, Request)
        assert self._prepare is not None, "ask for what is decoded only with a device that prepares it"
        preparing = asyncio.get_running_loop().run_in_executor(self._device, self._prepare, request, decoded)
        preparing.add_done_callback(partial(self._prepared, lease, answer))

    def _prepared(self, lease: Lease, answer: asyncio.Future[Answer], preparing: asyncio.Future[Answer]) -> None:
        self._give_back(lease)
        if not preparing.cancelled():
            settle(answer, preparing.exception() or preparing.result())

    def _give_back(self, lease: Lease) -> None:
        self._free.put_nowait(Lease(lease.number, lease.generation + 1))

    async def stop(self) -> None:
        """End all processes."""
        for serving in self._serving:
            serving.cancel()
        for worker in self._workers:
            worker.kill()
        for threads in (self._threads, self._device):
            threads.shutdown(wait=False)
        self._slots.close()
