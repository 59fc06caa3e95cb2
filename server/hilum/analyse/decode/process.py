"""One decode process: start, requests, end. A crash or a hang names the image that caused it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle

from hilum.analyse.decode.connection import WorkerConnection
from hilum.analyse.decode.slots import SlotMemory
from hilum.analyse.decode.worker import Broken, DecodeResponse, Prepare, RequestBatch, load, serve
from hilum.errors import Retry, WorkerDied
from hilum.observability import telemetry

# fork after torch's threads have started can deadlock
_SPAWN = multiprocessing.get_context("spawn")
_START_SECONDS = 120.0
_END_SECONDS = 1.0
log = telemetry.logger("analyse")


class DecodeProcess:
    """One spawned process and its pipe, for one event loop.

    It starts and ends in a thread of `threads`.
    """

    def __init__(
        self,
        slots: SlotMemory,
        threads: Executor,
        load_codecs: Callable[[], Prepare] = load,
        maximum_pixels: int = 0,
    ) -> None:
        """Keep the parameters; nothing is started.

        `maximum_pixels`: the process may take the memory that a picture of that size needs; 0: all
        memory there is.
        """
        self._slots = slots
        self._threads = threads
        self._load_codecs = load_codecs
        self._maximum_pixels = maximum_pixels
        self._process: BaseProcess | None = None
        self._pipe: WorkerConnection | None = None

    async def start(self) -> None:
        """Start, and wait until the imports are done.

        Raises Retry if that fails: the images are not the cause.
        """
        self._pipe = await WorkerConnection.of(
            await asyncio.get_running_loop().run_in_executor(self._threads, self._started)
        )

    def _started(self) -> Connection:
        try:
            return self._spawned(*_SPAWN.Pipe())
        except (EOFError, OSError) as error:
            log.error(
                "decode_process_not_started",
                problem=type(error).__name__,
                advice="it was refused or ended; is there memory left?",
            )
        self._ended()
        raise Retry("no decode process could be started; see the log", is_outage=True)

    def _spawned(self, ours: Connection, theirs: Connection) -> Connection:
        process = _SPAWN.Process(
            target=serve,
            args=(theirs, self._load_codecs, self._maximum_pixels),
            name="hilum-decode",
            daemon=True,
        )
        with theirs:
            process.start()
        self._process = process
        ours.send(self._slots.area)
        send_handle(ours, self._slots.descriptor, process.pid)
        if not ours.poll(_START_SECONDS):
            raise TimeoutError
        ours.recv()
        return ours

    async def send(self, asked: RequestBatch) -> None:
        """Send requests, after a restart if the process is gone. Raises Retry if it cannot start.

        It may have died while idle, which is no fault of these images.
        """
        if self._pipe is None or self._pipe.is_lost:
            await self.end()
            await self.start()
        assert self._pipe is not None
        with contextlib.suppress(EOFError):  # `receive` raises it
            self._pipe.send(asked)

    async def receive(self, seconds: float) -> list[DecodeResponse]:
        """Return the next results, in order.

        Raises WorkerDied if the process crashes or sends nothing for `seconds`; it has then ended.
        """
        assert self._pipe is not None
        try:
            said: list[DecodeResponse] | Broken = await self._pipe.receive(seconds)
        except EOFError:
            why = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._how_it_ended
            )
        except TimeoutError:
            why = f"took longer than {seconds:g} s"
        else:
            if not isinstance(said, Broken):
                return said
            why = f"had an error of its own\n{said.where}"
        await self.end()
        raise WorkerDied(why)

    def _how_it_ended(self) -> str:
        """Return the exit status; a signal is a negative number, as in multiprocessing."""
        assert self._process is not None
        self._process.join(_END_SECONDS)
        return f"ended with status {self._process.exitcode}"

    async def end(self) -> None:
        """End the process at once; the next `ask` starts it again."""
        self._close()
        await asyncio.get_running_loop().run_in_executor(self._threads, self._ended)

    def kill(self) -> None:
        """End the process at once, in the loop's thread."""
        self._close()
        self._ended()

    def _close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        self._pipe = None

    def _ended(self) -> None:
        # at once: when the pool stops, a thread may end it as well
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            process.join()
