"""Stage loops in an event loop, until the process is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from hilum.pipeline import StageLoop


def run_async(
    stop: threading.Event, scenario: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    """Run a scenario in an event loop; its event is set when the process has to stop."""

    async def run() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        if stop.is_set():
            return
        await scenario(stopping)

    asyncio.run(run())


def readiness_of(loops: Iterable[StageLoop]) -> tuple[bool, str]:
    """Return whether all loops can write their results, and the problems; for a heartbeat."""
    problems = "; ".join(loop.problem for loop in loops if loop.problem)
    return not problems, problems[:500]


class ServedLoop(Protocol):
    """A loop of a process: a stage's, or one beside the stages."""

    async def run(self) -> None:
        """Work until `stop`; then finish the work in hand."""

    def stop(self) -> None:
        """Begin nothing more."""


async def serve(
    loops: Sequence[ServedLoop],
    stopping: asyncio.Event,
    background: Iterable[Coroutine[Any, Any, None]] = (),
) -> None:
    """Run stage loops until asked to stop, then let each finish its jobs.

    `background` runs beside them and is cancelled after them. A task that ends by itself ends the
    process: a part that fails silently would leave a server that looks alive.
    """
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    others = [asyncio.create_task(coroutine) for coroutine in background]
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([asked, *tasks, *others], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    failed = [task for task in others if task.done()]
    for loop in loops:
        loop.stop()
    await asyncio.gather(*tasks)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in failed:
        task.result()
