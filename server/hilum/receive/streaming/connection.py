"""A blocking socket, read in large pieces into one buffer that is used again and again."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from hilum.receive.streaming.provider import Fragment, Unread

# With every association: an image of 512 by 512 pixels of 16 bits and its header. A fifth costs wake-ups, twice as much buys nothing.
_BUFFER_BYTES = 640 << 10
_ROOM_BYTES = 64 << 10  # a receive call for less is not worth it
_CLOSE_SECONDS = 2.0  # a peer closes its connection this soon after the last word, or we do
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux


class Connection:
    """The unread bytes lie between `_start` and `_end`. `release` is called before views that were taken lose their bytes.

    Its methods raise BlockingIOError when the socket's own time-out (SO_RCVTIMEO) is over, other OSErrors when the peer is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._bytes = bytearray(_BUFFER_BYTES)
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0
        self.release: Callable[[], None] = _nothing

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next bytes, in this layout."""
        while self._end - self._start < layout.size:
            self._fill()
        start = self._start
        self._start = start + layout.size
        return layout.unpack_from(self._buffer, start)

    def take(self, maximum: int) -> memoryview:
        """A view of the next bytes, at least one, at most so many."""
        if self._start == self._end:
            self._fill()
        start = self._start
        self._start = min(start + maximum, self._end)
        return self._buffer[start : self._start]

    def repeated(self, fragment: Fragment) -> list[memoryview]:
        """Take of PDUs that begin like that of this fragment those that are here as a whole: views of theirs."""
        beginning, size = fragment.beginning, fragment.size
        taken, step = [], len(beginning) + size
        while self._start + step <= self._end and self._bytes.startswith(beginning, self._start):
            following = self._start + step
            taken.append(self._buffer[following - size : following])
            self._start = following
        return taken

    def is_readable(self, seconds: float) -> bool:
        """Whether the next byte, or the end, is here; waits for it for so long. Raises OSError."""
        if self._start < self._end:
            return True
        if isinstance(self._sock, ssl.SSLSocket):
            return self._is_decrypted(self._sock, seconds)
        return _has_come(self._sock, seconds)

    def _is_decrypted(self, sock: ssl.SSLSocket, seconds: float) -> bool:
        """What has come may be TLS's own, and no byte of the peer's."""
        if not sock.pending() and not _has_come(sock, seconds):
            return False
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
        """Whether bytes of its descriptor are those of the peer, and a read of it waits as long as one of the socket."""
        return type(self._sock) is socket.socket and self._sock.gettimeout() is None

    def lend(self, fragment: Fragment, left: int, receive: Callable[[Unread, int], None]) -> tuple[int, bool]:
        """Let somebody read the last `left` bytes of a fragment, and others behind it. How many of these bytes he has left.

        And whether what he has read, or the fragment, was the data set's last. Raises OSError. Views that were taken lose their bytes.
        """
        unread = Unread(self._sock.fileno(), self._bytes, self._start, self._end, left, fragment.is_last, fragment.beginning)
        receive(unread, fragment.size)
        self._start, self._end = unread.start, unread.end
        if unread.problem is not None:
            raise unread.problem
        return unread.first, unread.is_last

    def _fill(self) -> None:
        if len(self._buffer) - self._end < _ROOM_BYTES:
            self._make_room()
        room = self._buffer[self._end :]
        count = self._sock.recv_into(room)
        if count == 0:
            raise ConnectionResetError
        self._end += count
        if _QUICK_ACK is not None and count < len(room):
            # All has been read that was there, and Linux takes it back by itself. A peer with Nagle's algorithm would wait 40 ms for a
            # delayed acknowledgement.
            self._sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _make_room(self) -> None:
        self.release()
        unread = bytes(self._buffer[self._start : self._end])
        self._buffer[: len(unread)] = unread
        self._start, self._end = 0, len(unread)

    def send(self, data: bytes) -> None:
        """All of it, at the end of a message: views that were taken lose their bytes."""
        if self._start == self._end:
            # What comes next has the whole buffer for itself, and finds the beginning of it in the processor's caches.
            self._start = self._end = 0
        self._sock.sendall(data)

    def close(self) -> None:
        """Free the buffer; the socket stays the caller's."""
        # The last reference to the buffer; `release` closes a circle that would keep it until the garbage is collected.
        self._bytes, self._buffer, self.release = bytearray(), memoryview(b""), _nothing


def _has_come(sock: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def say_last(sock: socket.socket, last: bytes, buffer: memoryview) -> None:
    """Send the last PDU, if there is one, and wait a moment for the peer to close.

    Bytes that nobody reads would reset what we sent.
    """
    end = time.monotonic() + _CLOSE_SECONDS
    with contextlib.suppress(OSError):
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
