"""The analyser's end of a decode process's pipe, in the event loop: no thread waits for an answer.

Two threads less to wake for each image, which cost more than what they did. The other end is a `multiprocessing.Connection`.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any, Final

_LENGTH: Final = struct.Struct("!i")  # Connection's framing; -1: a long one follows
_LONG: Final = struct.Struct("!iQ")
_LONGEST: Final = 0x7FFFFFFF
_PIECE_BYTES: Final = 1 << 16


class Pipe(asyncio.BufferedProtocol):
    """One question at a time."""

    def __init__(self) -> None:
        self._piece, self._received = memoryview(bytearray(_PIECE_BYTES)), bytearray()
        self._answer: asyncio.Future[Any] | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def of(cls, connection: Connection) -> Pipe:
        """Takes the connection over, which is closed then."""
        end = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        _, pipe = await asyncio.get_running_loop().create_connection(cls, sock=end)
        return pipe

    @property
    def is_lost(self) -> bool:
        """Whether the process has closed its end, or this one is closed."""
        return self._transport is None or self._transport.is_closing()

    async def ask(self, question: object, seconds: float) -> Any:  # noqa: ANN401 - whatever the process answers
        """Raises EOFError when the process has ended, TimeoutError when it takes longer than `seconds`; the pipe is of no use then."""
        if self._transport is None or self._transport.is_closing():
            raise EOFError
        loop = asyncio.get_running_loop()
        self._answer, self._deadline = loop.create_future(), loop.time() + seconds
        self._transport.write(_framed(question))
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        return await self._answer

    def close(self) -> None:
        """In the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """It outlives the question: the next ones need none of their own."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._look_at_the_time, loop)

    def _look_at_the_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if loop.time() < self._deadline:
            self._set_timer(loop)
        else:
            self._answer.set_exception(TimeoutError())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, _size_hint: int) -> memoryview:
        """From asyncio: where the next piece goes."""
        return self._piece

    def buffer_updated(self, size_bytes: int) -> None:
        """From asyncio: a part of an answer, or all of it."""
        self._received += self._piece[:size_bytes]
        if (message := _whole(self._received)) is None or self._answer is None:
            return
        answer = pickle.loads(message)  # noqa: S301 - from a process of ours
        self._received.clear()
        if not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """From asyncio."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())


def _framed(message: object) -> bytes:
    content = pickle.dumps(message)
    return (_LENGTH.pack(len(content)) if len(content) <= _LONGEST else _LONG.pack(-1, len(content))) + content


def _whole(received: bytearray) -> bytes | None:
    """The message, once all of it is there."""
    if len(received) < _LENGTH.size:
        return None
    start, (length,) = _LENGTH.size, _LENGTH.unpack_from(received)
    if length < 0:
        if len(received) < _LONG.size:
            return None
        start, (_, length) = _LONG.size, _LONG.unpack_from(received)
    return bytes(received[start:]) if len(received) - start >= length else None
