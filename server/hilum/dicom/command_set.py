"""Command sets (PS3.7 6.3.1, annex E): always implicit VR little endian, always group 0000."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from hilum.dicom.encoding import padded

C_STORE_RQ = 0x0001
C_ECHO_RQ = 0x0030
C_CANCEL_RQ = 0x0FFF
N_EVENT_REPORT_RQ = 0x0100
N_ACTION_RQ = 0x0130
IS_RESPONSE = 0x8000
HAS_DATA_SET = 0x0000
NO_DATA_SET = 0x0101

# Element numbers (PS3.7 E.1).
AFFECTED_SOP_CLASS_UID = 0x0002
COMMAND_FIELD = 0x0100
MESSAGE_ID = 0x0110
MESSAGE_ID_BEING_RESPONDED_TO = 0x0120
PRIORITY = 0x0700
COMMAND_DATA_SET_TYPE = 0x0800
STATUS = 0x0900
ERROR_COMMENT = 0x0902
AFFECTED_SOP_INSTANCE_UID = 0x1000
REQUESTED_SOP_CLASS_UID = 0x0003
REQUESTED_SOP_INSTANCE_UID = 0x1001
EVENT_TYPE_ID = 0x1002
ACTION_TYPE_ID = 0x1008

_ELEMENT = struct.Struct("<HHL")
_GROUP_LENGTH = struct.Struct("<HHLL")


def encode(elements: Mapping[int, bytes]) -> bytes:
    """Return a command set of element numbers and values, with Command Group Length.

    Empty values are left out.
    """
    return with_length(
        b"".join([element(number, value) for number, value in sorted(elements.items())])
    )


def element(number: int, value: bytes) -> bytes:
    """Return one element of a command set, or nothing where its value is empty."""
    return _ELEMENT.pack(0, number, len(value)) + value if value else b""


def with_length(body: bytes) -> bytes:
    """Return the elements, in ascending order, after a Command Group Length."""
    return _GROUP_LENGTH.pack(0, 0, 4, len(body)) + body


def decode(encoded: bytes) -> dict[int, bytes]:
    """Return the values of a command set by element number. Raises ValueError."""
    values: dict[int, bytes] = {}
    position = 0
    while position < len(encoded):
        if position + _ELEMENT.size > len(encoded):
            raise ValueError("a command set ends within an element")
        group, number, length = _ELEMENT.unpack_from(encoded, position)
        position += _ELEMENT.size + length
        if group or position > len(encoded):
            raise ValueError("not a command set")
        values[number] = encoded[position - length : position]
    return values


def us(value: int) -> bytes:
    """Return the value of a US element."""
    return value.to_bytes(2, "little")


def number(value: bytes | None) -> int | None:
    """Return the number in a US element; None: it is absent or not a US."""
    return int.from_bytes(value, "little") if value is not None and len(value) == 2 else None


def uid(value: str) -> bytes:
    """Return the value of a UI element."""
    return padded(value.encode("latin-1"), b"\0")


def comment(value: str) -> bytes:
    """Return the value of an LO element."""
    return padded(value.encode("ascii", "replace"))


def comment_text(value: bytes | None) -> str:
    """Return the text of an LO element in UTF-8 or Latin-1; empty: it is absent.

    Characters that cannot be printed become `?`.
    """
    given = (value or b"").rstrip(b"\0 ")
    try:
        found = given.decode("utf-8")
    except UnicodeDecodeError:
        found = given.decode("latin-1")
    return "".join(each if each.isprintable() else "?" for each in found).strip()


def text(value: bytes | None) -> str:
    """Return the text of a UI element; empty: it is absent."""
    return (value or b"").rstrip(b"\0 ").decode("latin-1")
