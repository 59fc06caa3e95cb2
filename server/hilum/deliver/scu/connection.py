"""A connected socket that speaks whole PDUs (PS3.8 9.3), with a time limit on each.

No thread and no polling: an association that waits for the next document costs nothing.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from hilum.dicom import pdu
from hilum.dicom.tls_client import is_of_our_end, words

_HEADER_BYTES: Final = pdu.HEADER.size
# of a response; the largest valid one is an A-ASSOCIATE-AC with 128 contexts
_MAXIMUM_PDU_BYTES: Final = 1 << 20
_READ_BYTES: Final = 65_536
_TLS_ALERT: Final = b"\x15\x03"  # RFC 8446 5.1; PDU types end at 7
_BUFFERS: Final = 256  # of one sendmsg; Linux takes 1024


class ConnectionLost(Exception):
    """The peer is gone, silent, or does not speak DICOM; the text names the case."""


class SocketReader:
    """A socket that exchanges whole PDUs, for one thread at a time.

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

    def receive(self, seconds: float | None = None) -> tuple[int, bytes]:
        """Return the next PDU: its type, and all its bytes. Raises ConnectionLost."""
        limit = self._timeout if seconds is None else seconds
        deadline = time.monotonic() + limit
        self._fill(_HEADER_BYTES, deadline, limit)
        if self._unread.startswith(_TLS_ALERT):
            raise ConnectionLost(
                "it answers in TLS: set tls of this destination, or give --tls to `hilum send`"
            )
        size = _HEADER_BYTES + int.from_bytes(self._unread[2:_HEADER_BYTES], "big")
        if size > _MAXIMUM_PDU_BYTES:
            raise ConnectionLost("it answers with something that is no DICOM")
        self._fill(size, deadline, limit)
        whole = bytes(self._unread[:size])
        del self._unread[:size]
        return whole[0], whole

    def _fill(self, size: int, deadline: float, seconds: float) -> None:
        while len(self._unread) < size:
            self._acknowledge_without_delay()
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self._socket.recv(_READ_BYTES)
            except TimeoutError as error:
                raise ConnectionLost(f"no answer within {seconds:g} s") from error
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
        if self._has_ended or self._unread:
            return True
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

    def close(self) -> None:
        """Close the socket without a message to the peer."""
        self._socket.close()


def _lost(error: OSError) -> ConnectionLost:
    if isinstance(error, ssl.SSLError) and is_of_our_end(error):
        return ConnectionLost(f"it ended TLS: {words(error)}; renew certificate_file")
    if isinstance(error, ssl.SSLError):
        # In TLS 1.3 the alert of a receiver that wants our certificate comes after our side has
        # finished (RFC 8446 4.4.2.4).
        return ConnectionLost(
            f"it ended TLS: {words(error)}; give certificate_file and key_file, and have our"
            " certificate trusted there"
        )
    return ConnectionLost(f"connection lost: {error.strerror}")


def pdvs(p_data: bytes) -> Iterator[tuple[bool, bool, bytes]]:
    """Return the PDVs of a P-DATA-TF PDU. Raises ConnectionLost.

    Each is: whether it is of a command, whether it is the last, and the fragment.
    """
    at = _HEADER_BYTES
    while at < len(p_data):
        size = int.from_bytes(p_data[at : at + pdu.ITEM_LENGTH_BYTES], "big")
        end = at + pdu.ITEM_LENGTH_BYTES + size
        if size < 2 or end > len(p_data):
            raise ConnectionLost("it answers with a P-DATA-TF that is not well formed")
        _, _, control = pdu.ITEM.unpack_from(p_data, at)
        yield (
            bool(control & pdu.IS_COMMAND),
            bool(control & pdu.IS_LAST),
            p_data[at + pdu.ITEM.size : end],
        )
        at = end
