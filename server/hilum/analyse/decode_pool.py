"""Decode processes, one request at a time each, so that a crash or a hang names the image that caused it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from hilum import telemetry
from hilum.analyse.worker import Answer, Broken, Prepare, Request, load, serve
from hilum.errors import Retry, WorkerDied

_SPAWN = multiprocessing.get_context("spawn")  # fork after torch's threads have started can deadlock
_START_SECONDS = 120.0
_END_SECONDS = 1.0
log = telemetry.logger("analyse")


class DecodeProcess:
    """One spawned process and the pipe to it. Blocking; used from one thread at a time."""

    def __init__(self, load_codecs: Callable[[], Prepare] = load) -> None:
        self._load_codecs = load_codecs
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Start, and wait until its imports are done. Raises Retry if it cannot: no image has anything to do with that."""
        ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=serve, args=(theirs, self._load_codecs), name="hilum-decode", daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        try:
            if ours.poll(_START_SECONDS):
                ours.recv()
                return
        except (EOFError, OSError):
            log.error("decode_process_not_started", advice="it ended while it started; is there memory left?")
        self.kill()
        raise Retry("no decode process could be started; see the log", is_outage=True)

    def ask(self, request: Request, seconds: float) -> Answer:
        """Raises WorkerDied if the process crashes or takes longer than `seconds`; it is gone then."""
        if self._process is None or not self._process.is_alive():  # it may have died idle, which is no fault of this image
            self.kill()
            self.start()
        assert self._pipe is not None
        try:
            self._pipe.send(request)
            answer: Answer | Broken | None = self._pipe.recv() if self._pipe.poll(seconds) else None
        except (EOFError, OSError):
            why = self._how_it_ended()
        else:
            if isinstance(answer, dict):
                return answer
            why = f"took longer than {seconds:g} s" if answer is None else f"had an error of its own\n{answer.where}"
        self.kill()
        raise WorkerDied(why)

    def _how_it_ended(self) -> str:
        """Exit status, or the signal as a negative number, as multiprocessing gives it."""
        assert self._process is not None
        self._process.join(_END_SECONDS)
        return f"ended with status {self._process.exitcode}"

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


class DecodePool:
    """As many decode processes as asked for (0: one fewer than the cores, at least one).

    `load_codecs` runs in each process and gives what answers its requests; a test gives another one, which must be importable there.
    """

    def __init__(self, processes: int, seconds_per_image: float, load_codecs: Callable[[], Prepare] = load) -> None:
        self._load_codecs = load_codecs
        self._count = processes or max(1, (os.cpu_count() or 2) - 1)
        self._seconds = seconds_per_image
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="decode")
        self._idle: asyncio.Queue[DecodeProcess] = asyncio.Queue()

    async def start(self) -> None:
        """Start all processes. Raises Retry if one cannot start."""
        workers = [DecodeProcess(self._load_codecs) for _ in range(self._count)]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, worker.start) for worker in workers))
        for worker in workers:
            self._idle.put_nowait(worker)

    async def ask(self, request: Request) -> Answer:
        """The next free process's answer. Raises WorkerDied; a new process takes the dead one's place."""
        worker = await self._idle.get()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, worker.ask, request, self._seconds)
        except WorkerDied as error:
            log.warning(
                "decode_process_died",
                how=str(error),
                advice="the image is tried alone, three times at most, and then ends as worker_crashed",
            )
            raise
        finally:
            self._idle.put_nowait(worker)

    async def stop(self) -> None:
        """End all processes that are idle, which are all when nobody asks."""
        while not self._idle.empty():
            self._idle.get_nowait().kill()
        self._threads.shutdown(wait=False)
