"""What the load test writes and reads on a connection itself.

PDUs of the Upper Layer (PS3.8 9.3) and command sets (PS3.7 6.3.1).

pynetdicom needs tens of milliseconds of CPU for an object of 10 MB; here the object goes from
memory to the socket without a copy.
Negotiation is rare: pynetdicom's PDU classes encode and decode it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

ASSOCIATE_RQ, ASSOCIATE_AC, ASSOCIATE_RJ, P_DATA_TF, RELEASE_RQ, RELEASE_RP, ABORT = range(1, 8)
C_STORE_RQ = 0x0001
C_STORE_RSP = 0x8001
C_ECHO_RQ = 0x0030
C_ECHO_RSP = 0x8030
NO_DATA_SET = 0x0101

# Elements of command sets that are used here, PS3.7 E.1.
AFFECTED_SOP_CLASS_UID = 0x0002
COMMAND_FIELD = 0x0100
MESSAGE_ID = 0x0110
RESPONDED_TO = 0x0120
PRIORITY = 0x0700
DATA_SET_TYPE = 0x0800
STATUS = 0x0900
ERROR_COMMENT = 0x0902
AFFECTED_SOP_INSTANCE_UID = 0x1000

Piece = bytes | memoryview
# PS3.8 E.2, Message Control Header
_IS_COMMAND = 0x01
_IS_LAST = 0x02
_PDV_OVERHEAD = 6
_VECTORS = 512  # buffers of one sendmsg; Linux takes 1024
_SPOKEN_PDU_BYTES = 262_144  # what is sent to a peer that sets no limit


class ConnectionEnded(Exception):
    """The peer is gone, or does not answer in time; the text says which."""


class Wire:
    """A connected socket that speaks whole PDUs.

    Blocking, with the kernel's own time limits: one system call for many PDUs.
    """

    def __init__(self, connected: socket.socket, timeout_seconds: float) -> None:
        self._socket = connected
        self._unread = bytearray()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = struct.pack("ll", int(timeout_seconds), int(timeout_seconds % 1 * 1_000_000))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def read_pdu(self) -> tuple[int, bytes]:
        """PDU type and the bytes of the whole PDU. Raises ConnectionEnded."""
        self._fill(6)
        size = 6 + int.from_bytes(self._unread[2:6], "big")
        self._fill(size)
        pdu = bytes(self._unread[:size])
        del self._unread[:size]
        return pdu[0], pdu

    def send(self, pieces: Iterator[Piece]) -> None:
        """Everything, in order, without joining it. Raises ConnectionEnded."""
        while group := list(islice(pieces, _VECTORS)):
            self._send_group(group)

    def close(self) -> None:
        """Without a word."""
        self._socket.close()

    def shut(self) -> None:
        """End the connection under a thread that reads from it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            self._socket.close()

    def _fill(self, size: int) -> None:
        while len(self._unread) < size:
            try:
                more = self._socket.recv(max(65_536, size - len(self._unread)))
            except BlockingIOError as error:
                raise ConnectionEnded("no answer in time") from error
            except OSError as error:
                raise ConnectionEnded(f"connection lost: {error.strerror}") from error
            if not more:
                raise ConnectionEnded("connection closed by the peer")
            self._unread += more

    def _send_group(self, group: Sequence[Piece]) -> None:
        try:
            sent = self._socket.sendmsg(group)
            while group := _after(group, sent):
                sent = self._socket.sendmsg(group)
        except BlockingIOError as error:
            raise ConnectionEnded("the peer takes no more data in time") from error
        except OSError as error:
            raise ConnectionEnded(f"connection lost: {error.strerror}") from error


def _after(group: Sequence[Piece], sent: int) -> list[Piece]:
    """What is left of `group` after its first `sent` bytes."""
    for index, piece in enumerate(group):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *group[index + 1 :]]
        sent -= len(piece)
    return []


def message(
    context_id: int, command: bytes, data_set: Sequence[Piece], maximum_pdu_bytes: int
) -> Iterator[Piece]:
    """A DIMSE message with its data set (none: a response), as P-DATA-TF PDUs."""
    yield from p_data(context_id, [command], maximum_pdu_bytes, is_command=True)
    yield from p_data(context_id, data_set, maximum_pdu_bytes, is_command=False)


def p_data(
    context_id: int, message: Sequence[Piece], maximum_pdu_bytes: int, *, is_command: bool
) -> Iterator[Piece]:
    """P-DATA-TF PDUs (PS3.8 9.3.5), one PDV each, of a message that lies in pieces.

    Header and content alternate, nothing is copied.
    """
    room = ((maximum_pdu_bytes or _SPOKEN_PDU_BYTES) - _PDV_OVERHEAD) // 2 * 2
    left = sum(len(piece) for piece in message)
    fragments = _fragments(message, room)
    while left > 0:
        size = min(room, left)
        left -= size
        control = (_IS_COMMAND if is_command else 0) | (0 if left else _IS_LAST)
        yield struct.pack(">BxIIBB", P_DATA_TF, size + _PDV_OVERHEAD, size + 2, context_id, control)
        while size:
            fragment = next(fragments)
            size -= len(fragment)
            yield fragment


def _fragments(message: Sequence[Piece], room: int) -> Iterator[Piece]:
    """Slices that never cross a PDU's end.

    The first piece may end inside of a PDU, the next one goes on there.
    """
    used = 0
    for piece in message:
        view = memoryview(piece)
        start = 0
        while start < len(view):
            size = min(room - used, len(view) - start)
            yield view[start : start + size]
            start += size
            used = (used + size) % room


def pdvs(pdu: bytes) -> Iterator[tuple[int, bool, bool, memoryview]]:
    """The PDVs of a P-DATA-TF PDU.

    Presentation Context ID, is it command, is it the last, content.
    """
    view = memoryview(pdu)
    at = 6
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        control = view[at + 5]
        yield (
            view[at + 4],
            bool(control & _IS_COMMAND),
            bool(control & _IS_LAST),
            view[at + 6 : at + 4 + size],
        )
        at += 4 + size


def command_set(elements: Mapping[int, int | str]) -> bytes:
    """Element number of group 0000 → value, as Implicit VR Little Endian with its group length.

    Numbers are US, texts UI.
    """
    body = b"".join(_element(number, value) for number, value in sorted(elements.items()))
    return struct.pack("<HHII", 0, 0, 4, len(body)) + body


def _element(number: int, value: int | str) -> bytes:
    content = struct.pack("<H", value) if isinstance(value, int) else value.encode("ascii")
    content += b"\0" * (len(content) % 2)
    return struct.pack("<HHI", 0, number, len(content)) + content


def read_command_set(encoded: bytes) -> dict[int, bytes]:
    """Element number of group 0000 → its value's bytes."""
    found = {}
    at = 0
    while at + 8 <= len(encoded):
        _, number, size = struct.unpack_from("<HHI", encoded, at)
        found[number] = encoded[at + 8 : at + 8 + size]
        at += 8 + size
    return found


def number_in(command: Mapping[int, bytes], element: int) -> int:
    """Value of a US element; 0 where it is absent."""
    return int.from_bytes(command.get(element, b"\0\0"), "little")


def text_in(command: Mapping[int, bytes], element: int) -> str:
    """Value of a UI or LO element without its padding; empty where it is absent."""
    return command.get(element, b"").rstrip(b"\0 ").decode("ascii", "replace")
