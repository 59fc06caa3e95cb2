"""A connected socket to a receiver, with a time limit on each exchange.

No thread and no polling: a connection that waits for the next document costs nothing.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from itertools import islice
from typing import Final

from hilum.dicom.tls_client import is_of_our_end, words

_READ_BYTES: Final = 65_536
_MOST_UNASKED_BYTES: Final = 1 << 20
_BUFFERS: Final = 256  # of one sendmsg; Linux takes 1024


class ConnectionLost(Exception):
    """The peer is gone, silent, or does not speak the protocol; the text names the case."""


class PeerSilent(ConnectionLost):
    """Nothing came in time, and the connection is there."""


class TlsEnded(ConnectionLost):
    """The peer, or TLS itself, has ended the encrypted connection."""


class PeerConnection:
    """A socket that sends buffers and reads with a time limit, for one thread at a time.

    After ConnectionLost only `close` may be called.
    """

    def __init__(self, connected: socket.socket, timeout_seconds: float) -> None:
        self._socket = connected
        self._timeout = timeout_seconds
        self._unread = bytearray()
        self._has_ended = False

    def send(self, buffers: Iterable[bytes]) -> None:
        """Send the buffers in order. Raises ConnectionLost.

        Each call into the kernel may take the time limit.
        """
        self._socket.settimeout(self._timeout)
        rest = iter(buffers)
        try:
            while group := list(islice(rest, _BUFFERS)):
                self._send_group(group)
        except TimeoutError as error:
            raise ConnectionLost(f"it took no data for {self._timeout:g} s") from error
        except OSError as error:
            raise _lost(error) from error

    def _send_group(self, group: list[bytes]) -> None:
        if isinstance(self._socket, ssl.SSLSocket):  # it has no sendmsg
            self._socket.sendall(b"".join(group))
            return
        sent = self._socket.sendmsg(group)
        if sent < sum(len(buffer) for buffer in group):
            self._socket.sendall(memoryview(b"".join(group))[sent:])

    def _read_more(self, deadline: float, seconds: float) -> None:
        """Read at least one byte. `seconds`: the limit that ends at `deadline`, for the text."""
        self._acknowledge_without_delay()
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            more = self._socket.recv(_READ_BYTES)
        except TimeoutError as error:
            raise PeerSilent(f"no answer within {seconds:g} s") from error
        except OSError as error:
            raise _lost(error) from error
        if not more:
            raise ConnectionLost("it closed the connection")
        self._unread += more

    def _acknowledge_without_delay(self) -> None:
        """Set TCP_QUICKACK, before each read because the kernel forgets it.

        DCMTK and Orthanc write the header of a response and its body apart. Their kernel holds the
        body back until ours acknowledges the header, which by default takes 40 ms. A document then
        takes 48 ms instead of 4.
        """
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    @property
    def has_spoken(self) -> bool:
        """Whether something has come unasked, or the other side is gone. Does not wait."""
        return self._has_ended or bool(self._unread) or self._reads_now()

    def _reads_now(self) -> bool:
        """Read without waiting; return whether bytes or the end have come."""
        self._socket.settimeout(0.0)
        try:
            more = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            more = b""
        self._unread += more
        self._has_ended = not more
        return True

    @property
    def has_ended(self) -> bool:
        """Whether the other side is gone, or sends without end. Does not wait.

        Bytes that have come are kept.
        """
        while not self._has_ended and self._reads_now():
            self._has_ended = self._has_ended or len(self._unread) > _MOST_UNASKED_BYTES
        return self._has_ended

    def close(self) -> None:
        """Close the socket without a message to the peer."""
        self._socket.close()


def _lost(error: OSError) -> ConnectionLost:
    if isinstance(error, ssl.SSLError) and is_of_our_end(error):
        return TlsEnded(f"it ended TLS: {words(error)}; renew certificate_file")
    if isinstance(error, ssl.SSLError):
        # In TLS 1.3 the alert of a receiver that wants our certificate comes after our side has
        # finished (RFC 8446 4.4.2.4).
        return TlsEnded(
            f"it ended TLS: {words(error)}; give certificate_file and key_file, and have our"
            " certificate trusted there"
        )
    return ConnectionLost(f"connection lost: {error.strerror}")
