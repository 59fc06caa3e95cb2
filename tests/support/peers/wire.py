"""A peer that speaks Upper Layer PDUs byte by byte (PS3.8 9.3), so that it can also say what no library would let it say."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Self

from pydicom.uid import ExplicitVRLittleEndian

from tests.support.peers.raw_scu import DX

VERIFICATION = "1.2.840.10008.1.1"
STORE_RQ, ECHO_RQ, CANCEL_RQ, FIND_RQ = 0x0001, 0x0030, 0x0FFF, 0x0020
RELEASE = struct.pack(">BxLxxxx", 5, 4)
ABORT = struct.pack(">BxLxxBB", 7, 4, 0, 0)
Elements = dict[int, bytes]


def association_request(
    calling: str, contexts: Sequence[tuple[str, str]], maximum_pdu_bytes: int
) -> bytes:
    """A-ASSOCIATE-RQ with the contexts 1, 3, 5 …, each a SOP Class and a Transfer Syntax."""
    proposed = b"".join(
        item(
            0x20,
            bytes((2 * number + 1, 0, 0, 0))
            + item(0x30, sop_class.encode())
            + item(0x40, syntax.encode()),
        )
        for number, (sop_class, syntax) in enumerate(contexts)
    )
    user = item(0x50, item(0x51, struct.pack(">L", maximum_pdu_bytes)) + item(0x52, b"1.2.3.4"))
    titles = struct.pack(">H2x16s16s32x", 1, b"HILUM".ljust(16), calling.encode().ljust(16))
    return pdu(1, titles + item(0x10, b"1.2.840.10008.3.1.1.1") + proposed + user)


def pdu(kind: int, content: bytes) -> bytes:
    return struct.pack(">BxL", kind, len(content)) + content


def item(kind: int, content: bytes) -> bytes:
    return struct.pack(">BxH", kind, len(content)) + content


def pdv(
    content: bytes, *, context: int = 1, is_command: bool = False, is_last: bool = True
) -> bytes:
    """One Presentation Data Value, without a PDU around it."""
    return struct.pack(">LBB", len(content) + 2, context, is_command | is_last << 1) + content


def command_set(values: Elements) -> bytes:
    """Group 0000 in implicit little endian, with its group length."""
    elements = b"".join(
        struct.pack("<HHL", 0, number, len(value)) + value
        for number, value in sorted(values.items())
    )
    return struct.pack("<HHLL", 0, 0, 4, len(elements)) + elements


def us(value: int) -> bytes:
    return value.to_bytes(2, "little")


def uid(value: str) -> bytes:
    return value.encode() + b"\0" * (len(value) % 2)


def store(
    instance: str, *, message_id: int = 1, sop_class: str = DX, **changes: bytes | None
) -> bytes:
    """The command set of a C-STORE-RQ.

    `changes`: `e0110=b"…"` sets an element, None leaves it out.
    """
    values = {
        0x0002: uid(sop_class),
        0x0100: us(STORE_RQ),
        0x0110: us(message_id),
        0x0700: us(0),
        0x0800: us(1),
        0x1000: uid(instance),
    }
    changed = {int(name[1:], 16): value for name, value in changes.items()}
    return command_set(
        {number: value for number, value in {**values, **changed}.items() if value is not None}
    )


def command(field: int, *, message_id: int = 1, sop_class: str = VERIFICATION) -> bytes:
    """The command set of a request without a data set."""
    return command_set(
        {0x0002: uid(sop_class), 0x0100: us(field), 0x0110: us(message_id), 0x0800: us(0x0101)}
    )


def message(
    command_bytes: bytes, data_set: bytes | None = None, *, context: int = 1, pdu_bytes: int = 16384
) -> bytes:
    """A whole message, each PDV in a PDU of at most this length."""
    sent = pdu(4, pdv(command_bytes, context=context, is_command=True))
    if data_set is None:
        return sent
    size = pdu_bytes - 6
    parts = [data_set[begin : begin + size] for begin in range(0, len(data_set), size)] or [b""]
    return sent + b"".join(
        pdu(4, pdv(part, context=context, is_last=number == len(parts)))
        for number, part in enumerate(parts, 1)
    )


class Wire:
    """One connection, with an association asked for.

    `answer`: the type and content of the PDU that came back.

    `behind`: sent in one piece with the request, before there can be an answer. `source`: our address.
    """

    def __init__(
        self,
        port: int,
        *,
        calling: str = "WIRE",
        contexts: Sequence[tuple[str, str]] = (
            (DX, ExplicitVRLittleEndian),
            (VERIFICATION, "1.2.840.10008.1.2"),
        ),
        maximum_pdu_bytes: int = 0,
        behind: bytes = b"",
        source: str = "127.0.0.1",
    ) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=30, source_address=(source, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(association_request(calling, contexts, maximum_pdu_bytes) + behind)
        self.answer = self.next_pdu()

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def next_pdu(self) -> tuple[int, bytes]:
        """Type and content; (0, b"") when the peer has closed."""
        try:
            header = self._read(6)
            return header[0], self._read(int.from_bytes(header[2:], "big"))
        except (EOFError, ConnectionResetError):
            return 0, b""

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not (more := self.socket.recv(count - len(found))):
                raise EOFError
            found += more
        return found

    def response(self) -> Elements:
        """The next command set, from as many PDUs as it needs; {} at the end of the association."""
        encoded, is_last = b"", False
        while not is_last:
            kind, content = self.next_pdu()
            if kind != 4:
                return {}
            encoded += content[6:]
            is_last = bool(content[5] & 2)
        return _elements(encoded)

    def status(self) -> int:
        """Of the next response; 0xFFFF at the end of the association."""
        return int.from_bytes(self.response().get(0x0900, b"\xff\xff"), "little")

    def status_of_echo(self) -> int:
        """Of a C-ECHO in context 3."""
        self.send(message(command(ECHO_RQ), context=3))
        return self.status()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def _elements(encoded: bytes) -> Elements:
    values, position = {}, 0
    while position < len(encoded):
        _, number, length = struct.unpack_from("<HHL", encoded, position)
        values[number] = encoded[position + 8 : position + 8 + length]
        position += 8 + length
    return values
