"""Requests of ours to the peer, which the loop sends between two messages of the peer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hilum.receive.upper_layer.connection import PduReader

# A peer that is about to release does so within this time, and one that stores continues.
_QUIET_SECONDS = 0.5
_LOOK_SECONDS = 0.05
_MESSAGE_IDS = 65_535


class RequestSender:
    """Requests of ours, one at a time.

    `exchange` runs on any thread, the rest on the association's. Only the association's thread
    reads and writes, because TLS permits no second one.
    """

    def __init__(self, silence_seconds: float) -> None:
        """Keep the parameter. `silence_seconds`: how long the peer may be silent meanwhile."""
        self._silence_seconds = silence_seconds
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._message_id = 0
        self._message = b""  # waits to be sent
        self._is_awaited = self._is_closed = False
        self._status: int | None = None
        self.is_expected = False
        """Whether requests of ours may come: set it before the first one."""

    @property
    def is_closed(self) -> bool:
        """Whether the association is over."""
        return self._is_closed

    def exchange(self, message_of: Callable[[int], bytes], seconds: float) -> int | None:
        """Send the message for this Message ID, and return the Status of its response.

        None: no response came in time. Raises ConnectionResetError if the association ends before
        it is sent.
        """
        with self._turn, self._changed:
            self._message_id = self._message_id % _MESSAGE_IDS + 1
            self._message = message_of(self._message_id)
            self._status = None
            self._changed.wait_for(lambda: self._is_closed or not self._message)
            if self._message:
                self._message = b""
                raise ConnectionResetError
            self._changed.wait_for(lambda: self._is_closed or not self._is_awaited, seconds)
            self._is_awaited = False
            return self._status

    def await_peer(self, connection: PduReader) -> None:
        """Return when a byte of the peer, or the end, is here; send while it is quiet.

        Raises OSError.
        """
        began = time.monotonic()
        while not connection.is_readable(_LOOK_SECONDS):
            quiet = time.monotonic() - began
            if quiet > self._silence_seconds:
                raise TimeoutError
            if quiet > _QUIET_SECONDS and self._message:
                self._send(connection)

    def _send(self, connection: PduReader) -> None:
        with self._changed:
            message = self._message
            self._message = b""
            self._is_awaited = True
            self._changed.notify_all()
        connection.send(message)

    def answered(self, message_id: int | None, status: int | None) -> None:
        """Take a response; it is discarded if no request waits for it."""
        with self._changed:
            if self._is_awaited and message_id == self._message_id:
                self._is_awaited = False
                self._status = status
                self._changed.notify_all()

    def close(self) -> None:
        """Note that the association is over."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
