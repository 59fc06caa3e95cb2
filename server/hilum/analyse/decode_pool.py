"""Decode processes, one request at a time each, so that a crash or a hang names the image that caused it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from hilum import telemetry
from hilum.analyse.decode_process import DecodeProcess
from hilum.analyse.slots import Area, Array, Lease, SlotMemory
from hilum.analyse.worker import Answer, Checked, Decoded, Prepare, Request, Slotted, SpecCheck, load, with_arrays
from hilum.errors import WorkerDied

T = TypeVar("T")

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
        self._load_codecs, self._seconds, self._prepare = load_codecs, seconds_per_image, prepare
        self._count = processes or max(1, (os.cpu_count() or 2) - 1)
        # One more than work at once where a device prepares: the next image is decoded while it works.
        self._slots = SlotMemory(Area(self._count + (prepare is not None), slot_bytes))
        self._free: asyncio.Queue[Lease] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="decode")
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._idle: asyncio.Queue[DecodeProcess] = asyncio.Queue()
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def slot_pages(self) -> Array:
        """The memory of all slots, (bytes,) uint8."""
        return self._slots.pages

    async def start(self) -> None:
        """Start all processes. Raises Retry if one cannot start."""
        workers = [DecodeProcess(self._slots, self._threads, self._load_codecs) for _ in range(self._count)]
        await asyncio.gather(*(worker.start() for worker in workers))
        for worker in workers:
            self._idle.put_nowait(worker)
        for index in range(self._slots.area.count):
            self._free.put_nowait(Lease(index, 1))

    async def ask(self, request: Request) -> Answer:
        """A tensor, or a reason, for each release of the request. Raises WorkerDied; a new process takes the dead one's place."""
        return await self._to_the_end(self._asked(request))

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Also if nobody waits any more: a process that is given back before it has answered would answer the next image with this one."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if nobody did, nobody misses it

    async def _asked(self, request: Request) -> Answer:
        lease = await self._free.get()
        try:
            answer = await self._answered(replace(request, slot=lease))
            assert not isinstance(answer, Checked)
            taken = self._taken(answer, lease) if isinstance(answer, Slotted) else answer
            return await self._prepared(request, taken) if isinstance(taken, Decoded) else taken
        finally:
            self._free.put_nowait(Lease(lease.index, lease.generation + 1))

    async def check(self, check: SpecCheck, on_device: Callable[[SpecCheck], Checked] | None = None) -> Checked:
        """Where tensors are prepared: in one of the decode processes, or, where `on_device` does it, in the device's thread."""
        if on_device is not None:
            return await asyncio.get_running_loop().run_in_executor(self._device, on_device, check)
        answer = await self._to_the_end(self._answered(check))
        assert isinstance(answer, Checked)
        return answer

    async def _answered(self, request: Request | SpecCheck) -> Answer | Decoded | Checked | Slotted:
        worker = await self._idle.get()
        try:
            return await worker.ask(request, self._seconds)
        except WorkerDied as error:
            log.warning(
                "decode_process_died",
                how=str(error),
                advice="the image is tried alone, three times at most, and then ends as worker_crashed",
            )
            raise
        finally:
            self._idle.put_nowait(worker)

    def _taken(self, slotted: Slotted, lease: Lease) -> Answer | Decoded:
        arrays = [self._slots.read(lease, place) for place in slotted.placed]
        if isinstance(slotted.answer, Decoded):
            return with_arrays(slotted.answer, arrays)
        # Tensors are small, and wait for their batch longer than a slot may be held.
        return with_arrays(slotted.answer, [array.copy() for array in arrays])

    async def _prepared(self, request: Request, decoded: Decoded) -> Answer:
        assert self._prepare is not None, "ask for what is decoded only with a device that prepares it"
        return await asyncio.get_running_loop().run_in_executor(self._device, self._prepare, request, decoded)

    async def stop(self) -> None:
        """End all processes that are idle, which are all when nobody asks."""
        while not self._idle.empty():
            self._idle.get_nowait().kill()
        for threads in (self._threads, self._device):
            threads.shutdown(wait=False)
        self._slots.close()
