"""A blocking socket, read in large pieces into one buffer that is reused."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from hilum.receive.upper_layer.provider import BorrowedBuffer, Fragment

# For every association: an image of 512 by 512 pixels of 16 bits and its header. A fifth of it
# costs wake-ups, twice as much gains nothing.
_BUFFER_BYTES = 640 << 10
_ROOM_BYTES = 64 << 10  # a receive call for less is not worth it
_CLOSE_SECONDS = 2.0  # a peer closes its connection this soon after the last PDU, or we do
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux


class PduReader:
    """A connection, with its unread bytes between `_start` and `_end`.

    `release` is called before views that were taken lose their bytes. The methods raise
    BlockingIOError when the socket's own time-out (SO_RCVTIMEO) is over, other OSErrors when the
    peer is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._bytes = bytearray(_BUFFER_BYTES)
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0
        self.release: Callable[[], None] = _nothing

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the next bytes, in this layout."""
        while self._end - self._start < layout.size:
            self._fill()
        start = self._start
        self._start = start + layout.size
        return layout.unpack_from(self._buffer, start)

    def take(self, maximum: int) -> memoryview:
        """Return a view of the next bytes, at least one, at most so many."""
        if self._start == self._end:
            self._fill()
        start = self._start
        self._start = min(start + maximum, self._end)
        return self._buffer[start : self._start]

    def repeated(self, fragment: Fragment) -> list[memoryview]:
        """Return views of complete PDUs in the buffer that begin like this fragment's."""
        beginning = fragment.beginning
        size = fragment.size
        taken = []
        step = len(beginning) + size
        while self._start + step <= self._end and self._bytes.startswith(beginning, self._start):
            following = self._start + step
            taken.append(self._buffer[following - size : following])
            self._start = following
        return taken

    def is_readable(self, seconds: float) -> bool:
        """Return whether the next byte, or the end, is here, after a wait of so long at most.

        Raises OSError.
        """
        if self._start < self._end:
            return True
        if isinstance(self._sock, ssl.SSLSocket):
            return self._is_decrypted(self._sock, seconds)
        return _has_come(self._sock, seconds)

    def _is_decrypted(self, sock: ssl.SSLSocket, seconds: float) -> bool:
        """Return whether a byte of the peer is here: received bytes may be TLS's own."""
        if not sock.pending() and not _has_come(sock, seconds):
            return False
        # Decrypt what is here, without a wait: a record of TLS may hold no byte of the peer.
        limit = sock.gettimeout()
        sock.settimeout(0.0)
        try:
            self._fill()
        except ssl.SSLWantReadError:
            return False
        finally:
            sock.settimeout(limit)
        return True

    @property
    def is_plain(self) -> bool:
        """Whether the descriptor gives the peer's bytes, and waits as long as the socket."""
        return type(self._sock) is socket.socket and self._sock.gettimeout() is None

    def lend(
        self, fragment: Fragment, left: int, receive: Callable[[BorrowedBuffer, int], None]
    ) -> tuple[int, bool]:
        """Let another reader take the last `left` bytes of a fragment, and others after it.

        Return how many of these bytes are left, and whether the last one read was the data set's
        last fragment. Raises OSError. Views that were taken lose their bytes.
        """
        unread = BorrowedBuffer(
            self._sock.fileno(),
            self._bytes,
            self._start,
            self._end,
            left,
            fragment.is_last,
            fragment.beginning,
        )
        receive(unread, fragment.size)
        self._start = unread.start
        self._end = unread.end
        if unread.problem is not None:
            raise unread.problem
        return unread.first, unread.is_last

    def _fill(self) -> None:
        if len(self._buffer) - self._end < _ROOM_BYTES:
            self._make_room()
        room = self._buffer[self._end :]
        count = self._sock.recv_into(room)
        # The peer has closed its side without a release (Sta6, AA-4).
        if count == 0:
            raise ConnectionResetError
        self._end += count
        if _QUICK_ACK is not None and count < len(room):
            # All available bytes have been read, and Linux resets the option by itself. A peer with
            # Nagle's algorithm would wait 40 ms for a delayed acknowledgement.
            self._sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _make_room(self) -> None:
        self.release()
        unread = bytes(self._buffer[self._start : self._end])
        self._buffer[: len(unread)] = unread
        self._start = 0
        self._end = len(unread)

    def send(self, data: bytes) -> None:
        """Send all bytes at the end of a message; views that were taken lose their bytes."""
        if self._start == self._end:
            # The next bytes get the whole buffer, whose beginning is in the processor's caches.
            self._start = self._end = 0
        self._sock.sendall(data)

    def close(self) -> None:
        """Free the buffer; the caller closes the socket."""
        # The last reference to the buffer; `release` closes a cycle that would keep it until
        # garbage collection.
        self._bytes = bytearray()
        self._buffer = memoryview(b"")
        self.release = _nothing


def _has_come(sock: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def say_last(sock: socket.socket, last: bytes, buffer: memoryview) -> None:
    """Send the last PDU, if there is one, and wait a moment for the peer to close.

    Unread bytes of the peer would reset the connection before it reads ours.
    """
    end = time.monotonic() + _CLOSE_SECONDS
    with contextlib.suppress(OSError):
        # Sta13: our last PDU, then the peer's close or the end of the time.
        if last:
            sock.settimeout(_CLOSE_SECONDS)
            sock.sendall(last)
            sock.shutdown(socket.SHUT_WR)
        while last and (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv_into(buffer):
                break


def _nothing() -> None:
    pass
