"""The analyser's end of a decode process's pipe, in the event loop.

No thread waits for a result. Waking two threads for each image cost more than their work. The other
end is a `multiprocessing.Connection`.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from collections import deque
from multiprocessing.connection import Connection
from typing import Any, Final

from hilum.analyse.futures import settle

_LENGTH: Final = struct.Struct("!i")  # Connection's framing; -1: a long one follows
_LONG: Final = struct.Struct("!iQ")
_LONGEST: Final = 0x7FFFFFFF
_PIECE_BYTES: Final = 1 << 16


class WorkerConnection(asyncio.BufferedProtocol):
    """Requests of one caller, and the messages with their results."""

    def __init__(self) -> None:
        self._piece = memoryview(bytearray(_PIECE_BYTES))
        self._received = bytearray()
        self._heard: deque[Any] = deque()
        self._hearing: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def of(cls, connection: Connection) -> WorkerConnection:
        """Take over the connection, which is closed then."""
        end = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        _, pipe = await asyncio.get_running_loop().create_connection(cls, sock=end)
        return pipe

    @property
    def is_lost(self) -> bool:
        """Whether the process has closed its end, or this one is closed."""
        return self._transport is None or self._transport.is_closing()

    def ask(self, question: object) -> None:
        """Send a request. Raises EOFError when the process has ended; the pipe is then unusable."""
        if self._transport is None or self._transport.is_closing():
            raise EOFError
        self._transport.write(_framed(question))

    async def hear(self, seconds: float) -> Any:  # noqa: ANN401 - any object that the process sends
        """Return the next message.

        Raises EOFError as `ask`, TimeoutError when it does not come within `seconds`; the pipe is
        then unusable.
        """
        if self._heard:
            return self._heard.popleft()
        if self.is_lost:
            raise EOFError
        loop = asyncio.get_running_loop()
        self._hearing = loop.create_future()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        await self._hearing
        return self._heard.popleft()

    def close(self) -> None:
        """Close the pipe, in the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer; it stays for later messages, which need no timer of their own."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._look_at_the_time, loop)

    def _look_at_the_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._hearing is None or self._hearing.done():
            return
        if loop.time() < self._deadline:
            self._set_timer(loop)
        else:
            settle(self._hearing, TimeoutError())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, for asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the buffer of the next piece, for asyncio."""
        return self._piece

    def buffer_updated(self, size_bytes: int) -> None:
        """Take a part of a message, or several messages, from asyncio."""
        self._received += self._piece[:size_bytes]
        while (message := _first(self._received)) is not None:
            self._heard.append(pickle.loads(message))  # noqa: S301 - from a process of ours
        if self._heard and self._hearing is not None:
            settle(self._hearing, None)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Raise EOFError in the caller, for asyncio."""
        if self._hearing is not None:
            settle(self._hearing, EOFError())


def _framed(message: object) -> bytes:
    content = pickle.dumps(message)
    return (
        _LENGTH.pack(len(content)) if len(content) <= _LONGEST else _LONG.pack(-1, len(content))
    ) + content


def _first(received: bytearray) -> bytes | None:
    """Remove and return the first message, once all of it is there."""
    if len(received) < _LENGTH.size:
        return None
    start = _LENGTH.size
    (length,) = _LENGTH.unpack_from(received)
    if length < 0:
        if len(received) < _LONG.size:
            return None
        start = _LONG.size
        (_, length) = _LONG.unpack_from(received)
    if len(received) - start < length:
        return None
    message = bytes(received[start : start + length])
    del received[: start + length]
    return message
