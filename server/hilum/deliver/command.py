"""Command sets of C-STORE and C-ECHO (PS3.7 9.3): Implicit VR Little Endian, elements of group 0000 in order."""

from __future__ import annotations

import struct
from typing import Final

C_STORE_RQ: Final = 0x0001
C_ECHO_RQ: Final = 0x0030
_RESPONSE: Final = 0x8000
_HAS_DATA_SET, _NO_DATA_SET = 0x0000, 0x0101
_MEDIUM: Final = 0x0000

# Elements, PS3.7 E.1.
_SOP_CLASS_UID, _COMMAND, _MESSAGE_ID, _RESPONDED_TO, _PRIORITY = 0x0002, 0x0100, 0x0110, 0x0120, 0x0700
_DATA_SET_TYPE, _STATUS, _SOP_INSTANCE_UID = 0x0800, 0x0900, 0x1000


class NotTheAnswer(Exception):
    """What came is the response to another request, or none at all."""


def store_request(message_id: int, sop_class_uid: str, sop_instance_uid: str) -> bytes:
    """C-STORE-RQ (PS3.7 Table 9.3-1)."""
    return _encode(
        {
            _SOP_CLASS_UID: _uid(sop_class_uid),
            _COMMAND: _number(C_STORE_RQ),
            _MESSAGE_ID: _number(message_id),
            _PRIORITY: _number(_MEDIUM),
            _DATA_SET_TYPE: _number(_HAS_DATA_SET),
            _SOP_INSTANCE_UID: _uid(sop_instance_uid),
        }
    )


def echo_request(message_id: int) -> bytes:
    """C-ECHO-RQ (PS3.7 Table 9.3-12)."""
    return _encode(
        {
            _SOP_CLASS_UID: _uid("1.2.840.10008.1.1"),
            _COMMAND: _number(C_ECHO_RQ),
            _MESSAGE_ID: _number(message_id),
            _DATA_SET_TYPE: _number(_NO_DATA_SET),
        }
    )


def status_of(encoded: bytes, request: int, message_id: int) -> int:
    """Status (0000,0900) of the response to this request. Raises NotTheAnswer."""
    elements = _decode(encoded)
    is_answer = elements.get(_COMMAND) == request | _RESPONSE and elements.get(_RESPONDED_TO) == message_id
    if not is_answer or _STATUS not in elements:
        raise NotTheAnswer("it answered something else")
    return elements[_STATUS]


def _number(value: int) -> bytes:
    return struct.pack("<H", value)


def _uid(value: str) -> bytes:
    return value.encode("ascii") + b"\0" * (len(value) % 2)


def _encode(elements: dict[int, bytes]) -> bytes:
    body = b"".join(struct.pack("<HHI", 0, number, len(value)) + value for number, value in elements.items())
    return struct.pack("<HHII", 0, 0, 4, len(body)) + body  # Command Group Length


def _decode(encoded: bytes) -> dict[int, int]:
    """The elements of two bytes; all that matters here is US."""
    found, at = {}, 0
    while at + 8 <= len(encoded):
        group, number, size = struct.unpack_from("<HHI", encoded, at)
        if group == 0 and size == 2 and at + 10 <= len(encoded):
            found[number] = int.from_bytes(encoded[at + 8 : at + 10], "little")
        at += 8 + size
    return found
