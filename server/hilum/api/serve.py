"""The web server: serves on a bound socket until asked to stop, and finishes what is in progress."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

_FINISH_SECONDS = 10
_TICK_SECONDS = 0.5  # the Date of answers is that old at most
_KEEP_ALIVE_SECONDS = 20


class _Server(uvicorn.Server):
    """Stops on an event instead of on signals: those belong to the process that this is a part of."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's handlers as they are."""
        yield

    async def main_loop(self) -> None:
        """Until asked to stop. uvicorn's own loop looks ten times a second, which is a quarter of what an idle server costs."""
        while not self._stop.is_set() and not await self.on_tick(0):  # noqa: ASYNC110 - the event is a thread's
            await asyncio.sleep(_TICK_SECONDS)


def serve_api(app: FastAPI, listening: socket.socket, stop: threading.Event, finish_seconds: int = _FINISH_SECONDS) -> None:
    """Serve until `stop` is set, then finish requests in progress. Blocks. The access log is off: metrics count the requests.

    `finish_seconds`: requests that take longer then are cancelled.
    """
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=finish_seconds,
    )
    _Server(config, stop).run(sockets=[listening])
