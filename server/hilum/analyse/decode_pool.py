"""Decode processes, one request at a time each, so that a crash or a hang names the image that caused it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from hilum import telemetry
from hilum.analyse.worker import Answer, Request, serve
from hilum.errors import WorkerDied

_SPAWN = multiprocessing.get_context("spawn")  # fork after torch's threads have started can deadlock
_START_SECONDS = 120.0
log = telemetry.logger("analyse")


class DecodeProcess:
    """One spawned process and the pipe to it. Blocking; used from one thread at a time."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Start, and wait until its imports are done."""
        ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=serve, args=(theirs,), name="hilum-decode", daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        if not ours.poll(_START_SECONDS):
            self.kill()
            raise WorkerDied
        ours.recv()

    def ask(self, request: Request, seconds: float) -> Answer:
        """Raises WorkerDied if the process crashes or takes longer than `seconds`; it is gone then."""
        if self._pipe is None:
            self.start()
        assert self._pipe is not None
        try:
            self._pipe.send(request)
            if self._pipe.poll(seconds):
                answer: Answer = self._pipe.recv()
                return answer
        except (EOFError, OSError) as error:
            self.kill()
            raise WorkerDied from error
        self.kill()
        raise WorkerDied

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


class DecodePool:
    """As many decode processes as asked for (0: one fewer than the cores, at least one)."""

    def __init__(self, processes: int, seconds_per_image: float) -> None:
        self._count = processes or max(1, (os.cpu_count() or 2) - 1)
        self._seconds = seconds_per_image
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="decode")
        self._idle: asyncio.Queue[DecodeProcess] = asyncio.Queue()

    async def start(self) -> None:
        """Start all processes."""
        workers = [DecodeProcess() for _ in range(self._count)]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, worker.start) for worker in workers))
        for worker in workers:
            self._idle.put_nowait(worker)

    async def ask(self, request: Request) -> Answer:
        """The next free process's answer. Raises WorkerDied; a new process takes the dead one's place."""
        worker = await self._idle.get()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, worker.ask, request, self._seconds)
        except WorkerDied:
            log.warning("decode_process_died", advice="the image is tried alone, three times at most, and then ends as worker_crashed")
            raise
        finally:
            self._idle.put_nowait(worker)

    async def stop(self) -> None:
        """End all processes that are idle, which are all when nobody asks."""
        while not self._idle.empty():
            self._idle.get_nowait().kill()
        self._threads.shutdown(wait=False)
