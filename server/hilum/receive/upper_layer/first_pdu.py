"""The first PDU of a connection, an A-ASSOCIATE-RQ (PS3.8 9.3.2), bounded in bytes and time."""

from __future__ import annotations

import socket
import time
from typing import Final

from hilum.dicom import pdu
from hilum.receive.upper_layer.protocol import OF_OTHER_STATES, AbortReason, ProtocolError

# 128 Presentation Contexts with 50 Transfer Syntaxes each, and a user identity of 64 KiB.
MAXIMUM_BYTES: Final = 256 << 10
_READ_BYTES = 64 << 10
_DICOM = OF_OTHER_STATES | {pdu.P_DATA_TF, pdu.RELEASE_RQ}


def read_first_pdu(sock: socket.socket, seconds: float) -> bytes:
    """Return all bytes of the first PDU, and no later ones; `seconds` are for the whole of it.

    Changes the socket's time-out. Raises ProtocolError, TimeoutError, ConnectionResetError where
    the connection has ended, other OSErrors.
    """
    deadline = time.monotonic() + seconds
    header = _read(sock, pdu.HEADER.size, deadline)
    kind, length = pdu.HEADER.unpack(header)
    if kind == pdu.ABORT:  # PS3.8 Table 9-10, Sta2: the connection is closed without a response
        raise ConnectionResetError
    if kind != pdu.ASSOCIATE_RQ:
        raise ProtocolError(
            AbortReason.UNEXPECTED_PDU if kind in _DICOM else AbortReason.UNRECOGNISED_PDU
        )
    if length > MAXIMUM_BYTES:
        raise ProtocolError(AbortReason.INVALID_PARAMETER)
    return header + _read(sock, length, deadline)


def _read(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Return so many bytes; memory grows with the received bytes, not with the announced length."""
    found = bytearray()
    while len(found) < count:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        sock.settimeout(left)
        piece = sock.recv(min(_READ_BYTES, count - len(found)))
        if not piece:
            raise ConnectionResetError
        found += piece
    return bytes(found)
