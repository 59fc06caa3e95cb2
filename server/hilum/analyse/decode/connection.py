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
from multiprocessing.connection import Connection
from typing import Any, Final

_LENGTH: Final = struct.Struct("!i")  # Connection's framing; -1: a long one follows
_LONG: Final = struct.Struct("!Q")


class WorkerConnection:
    """Requests of one caller, and the messages with their results."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, connection: Connection) -> WorkerConnection:
        """Take over the connection, which is closed then."""
        end = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        return cls(*await asyncio.open_connection(sock=end))

    @property
    def is_lost(self) -> bool:
        """Whether the process has closed its end, or this one is closed."""
        return self._reader.at_eof() or self._writer.is_closing()

    def send(self, request: object) -> None:
        """Send a request. Raises EOFError when the process has ended; the pipe is then unusable."""
        if self.is_lost:
            raise EOFError
        content = pickle.dumps(request)
        self._writer.write(_LENGTH.pack(len(content)) + content)

    async def receive(self, seconds: float) -> Any:  # noqa: ANN401 - any object that the process sends
        """Return the next message.

        Raises EOFError as `send`, TimeoutError when it does not come within `seconds`; the pipe is
        then unusable.
        """
        async with asyncio.timeout(seconds):
            try:
                return pickle.loads(await self._message())  # noqa: S301 - from a process of ours
            except ConnectionError as error:
                raise EOFError from error

    async def _message(self) -> bytes:
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if length < 0:
            (length,) = _LONG.unpack(await self._reader.readexactly(_LONG.size))
        return await self._reader.readexactly(length)

    def close(self) -> None:
        """Close the pipe, in the loop's thread."""
        self._writer.transport.abort()
