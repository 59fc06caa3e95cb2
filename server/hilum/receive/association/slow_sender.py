"""Detection of a sender that is too slow, apart from a silent one and one that waits for us.

The kernel counts the received bytes, so detection costs no time while receiving. It works for
compiled code, Python and TLS.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
import time
from typing import Final

from hilum.minimum_rate import Pace
from hilum.settings import Receive

_INFO_BYTES: Final = 136  # of struct tcp_info (linux/tcp.h), up to tcpi_bytes_received
_RECEIVED_AT: Final = 128


class SlowSenderDetector:
    """The detection for one association, called at intervals, on one thread."""

    def __init__(self, settings: Receive) -> None:
        minimum = settings.minimum_bytes_per_second
        seconds = settings.network_timeout_seconds
        self._pace = Pace(minimum, seconds)
        self._is_wanted = minimum > 0
        self._taken_bytes = -1
        self.advice = (
            f"It sent less than {minimum} bytes a second of a message for {2 * seconds:g} s: see to"
            " the network or to the sender, and send again; receive.minimum_bytes_per_second is"
            " the limit."
        )

    def is_found(self, connection: socket.socket, whole: int) -> bool:
        """Return whether the sender is below the minimum rate. `whole`: messages completed so far.

        Under TLS, encrypted bytes are counted.
        """
        if not self._is_wanted:
            return False
        try:
            received = _received_bytes(connection)
            unread = _unread_bytes(connection)
        except (OSError, ValueError):  # closed meanwhile
            return False
        if received is None:
            return False
        now = time.monotonic()
        taken_before = self._taken_bytes
        self._taken_bytes = received - unread
        # the sender waits for us, usually for the disk
        if unread and self._taken_bytes == taken_before:
            self._pace.begin_anew(now, received)
            return False
        return self._pace.is_too_slow(now, received, whole)


def _received_bytes(connection: socket.socket) -> int | None:
    """Return the bytes received since the beginning. Raises OSError.

    None: this kernel does not count them.
    """
    if sys.platform != "linux":
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return None
    # Bytes have come, at least those of its A-ASSOCIATE-RQ.
    return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0]) or None


def _unread_bytes(connection: socket.socket) -> int:
    """Return the bytes that have come and were not read yet.

    Raises OSError, and ValueError where the socket is closed.
    """
    return int(struct.unpack("=i", fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))[0])
