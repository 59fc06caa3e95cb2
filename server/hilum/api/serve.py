"""The web server: serves on a bound socket until `stop`, and finishes requests in progress."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from hilum.api.connection_limits import Limits, ThrottledConnection
from hilum.api.tls import WebTls
from hilum.observability import telemetry
from hilum.settings import Api

_FINISH_SECONDS = 10
_TICK_SECONDS = 0.5  # the Date of answers is that old at most
_KEEP_ALIVE_SECONDS = 20
# asyncio tries as often to accept one while there is no descriptor for it, and logs each try
_WAITING_CONNECTIONS = 128
_REPEAT_SECONDS = 60.0
_NO_DESCRIPTOR = "socket.accept() out of system resource"
log = telemetry.logger("api")


class WebLoop(asyncio.SelectorEventLoop):
    """The loop of asyncio with a shorter limit for TLS handshakes.

    Its own limit is a minute, and a connection in its handshake counts in no limit of ours.
    """

    async def create_server(self, *arguments: Any, **named: Any) -> asyncio.Server:  # noqa: ANN401 - asyncio's
        """The same, with the time that we give to the head of a request."""
        if named.get("ssl") is not None:
            named["ssl_handshake_timeout"] = Limits().head_seconds
        made: asyncio.Server = await super().create_server(*arguments, **named)
        return made


class _Server(uvicorn.Server):
    """Stops on an event instead of on signals.

    Those belong to the process that this is a part of.
    """

    def __init__(
        self, config: uvicorn.Config, stop: threading.Event, has_come: asyncio.Event
    ) -> None:
        """`has_come`: set when a connection is made."""
        super().__init__(config)
        self._stop = stop
        self._has_come = has_come

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's handlers as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the loop, with our own log events for its errors."""
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Run until `stop`. Uvicorn's own loop looks ten times a second.

        This one sleeps while there is no connection.
        """
        threading.Thread(
            target=self._await_stop, args=[asyncio.get_running_loop()], name="stop", daemon=True
        ).start()
        while not self._stop.is_set() and not await self.on_tick(0):
            await self._await_tick()
            for connection in list(self.server_state.connections):
                cast("ThrottledConnection", connection).close_if_late(time.monotonic())

    async def _await_tick(self) -> None:
        """So long, or until the first connection, which finds the Date of now.

        Its request is read in a later turn of the loop.
        """
        if self.server_state.connections:
            await asyncio.sleep(_TICK_SECONDS)
        else:
            self._has_come.clear()
            await self._has_come.wait()

    def _await_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stop.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._has_come.set)


class LoopErrors:
    """Logs errors that reach the event loop, without asyncio's words: they quote messages.

    A lack of descriptors once a minute.
    """

    def __init__(self) -> None:
        self._said_at = -_REPEAT_SECONDS

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As `loop.set_exception_handler` wants it."""
        if context["message"] != _NO_DESCRIPTOR:
            log.error("loop_error", what=context["message"], exc_info=context.get("exception"))
        elif time.monotonic() - self._said_at >= _REPEAT_SECONDS:
            self._said_at = time.monotonic()
            log.error(
                "out_of_file_descriptors",
                error=_words(context),
                advice="connections wait; see ulimit -n of this process",
            )


def _words(context: dict[str, Any]) -> str:
    return str(getattr(context.get("exception"), "strerror", ""))


def serve_api(
    app: FastAPI,
    listening: socket.socket,
    stop: threading.Event,
    finish_seconds: int = _FINISH_SECONDS,
    limits: Limits | None = None,
    api: Api | None = None,
) -> None:
    """Serve until `stop` is set, then finish requests in progress.

    Blocks. The access log is off: metrics count the requests.

    `finish_seconds`: requests that take longer after `stop` are cancelled. `api`: the settings for
    TLS and proxies; None: neither.
    """
    front = api or Api()
    tls = WebTls(front) if front.is_tls else None
    has_come = asyncio.Event()
    connection = functools.partial(
        ThrottledConnection, limits=limits or Limits(), has_come=has_come
    )
    config = uvicorn.Config(
        app,
        loop=f"{__name__}:{WebLoop.__name__}",
        http=cast("type[asyncio.Protocol]", connection),
        access_log=False,
        log_config=None,
        lifespan="off",
        ws="none",
        server_header=False,
        backlog=_WAITING_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=finish_seconds,
        # By default uvicorn believes every program of this machine the address that it claims.
        proxy_headers=bool(front.proxies),
        forwarded_allow_ips=list(front.proxies),
        ssl_context_factory=None if tls is None else lambda _config, _default: tls.context(),
    )
    _Server(config, stop, has_come).run(sockets=[listening])
