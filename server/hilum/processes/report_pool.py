"""Processes that build reports, renewed when one of them dies."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import ParamSpec, Self, TypeVar

from hilum.errors import WorkerDied
from hilum.libraries import silence_libraries
from hilum.observability import telemetry
from hilum.process_limits import forbid_core_files, limit_memory
from hilum.services.launch_spec import die_with_parent

P = ParamSpec("P")
T = TypeVar("T")
log = telemetry.logger("processes")


class ReportPool:
    """A pool of spawned processes.

    One that dies breaks the whole pool, as in Python's pools. Then there is a new pool at once.
    """

    def __init__(self, processes: int, maximum_pixels: int = 0) -> None:
        """Keep the parameters.

        `maximum_pixels`: the processes may take the memory that a picture of that size needs; 0:
        all memory there is.
        """
        self._processes = processes
        self._maximum_pixels = maximum_pixels

    def __enter__(self) -> Self:
        """Start the processes: their imports take a second that no study should wait for."""
        self._executor = self._started()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._executor.shutdown(cancel_futures=True)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result, from another process.

        Raises its errors, and WorkerDied for all calls that a dying process had.
        """
        executor, future = self._submit(partial(function, *args, **kwargs))
        try:
            return await asyncio.wrap_future(future)
        except BrokenProcessPool as error:
            self._renew(executor)
            raise WorkerDied from error

    def _submit(self, call: Callable[[], T]) -> tuple[ProcessPoolExecutor, Future[T]]:
        """Submit to the pool, or to a new one if a process of it died idle.

        Such a death is no fault of the next result.
        """
        executor = self._executor
        try:
            return executor, executor.submit(call)
        except BrokenProcessPool:
            self._renew(executor)
            return self._executor, self._executor.submit(call)

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        if broken is self._executor:
            log.warning("report_process_died", advice="its results are tried again, one at a time")
            self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        executor = ProcessPoolExecutor(
            self._processes, get_context("spawn"), _start, (self._maximum_pixels,)
        )
        for _ in range(self._processes):
            executor.submit(os.getpid)
        return executor


def _start(maximum_pixels: int) -> None:
    """Initialise a process: it ends with its dispatcher, and the supervisor handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence_libraries()
    die_with_parent(os.getppid())
    forbid_core_files()
    gc.disable()
    import hilum.report  # noqa: F401, PLC0415 - loads highdicom now instead of with the first report

    gc.freeze()  # as in every other process: objects of the imports are not visited again
    gc.enable()
    limit_memory(maximum_pixels)
