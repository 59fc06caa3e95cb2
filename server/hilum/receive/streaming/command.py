"""Command sets (PS3.7 6.3, annex E): always implicit VR little endian, always group 0000."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hilum.receive.streaming.pdu import ProtocolError, Reason

C_STORE_RQ, C_ECHO_RQ, C_CANCEL_RQ = 0x0001, 0x0030, 0x0FFF
IS_RESPONSE = 0x8000
UNRECOGNISED_OPERATION = 0x0211  # PS3.7 annex C.5.12
_NO_DATA_SET = 0x0101
_AFFECTED_SOP_CLASS_UID, _COMMAND_FIELD, _MESSAGE_ID, _MESSAGE_ID_BEING_RESPONDED_TO = 0x0002, 0x0100, 0x0110, 0x0120
_PRIORITY, _COMMAND_DATA_SET_TYPE, _STATUS, _ERROR_COMMENT, _AFFECTED_SOP_INSTANCE_UID = 0x0700, 0x0800, 0x0900, 0x0902, 0x1000
_ELEMENT = struct.Struct("<HHL")


@dataclass(frozen=True, slots=True)
class Command:
    """What we use of a request. What is missing is empty or None."""

    field: int
    message_id: int | None
    has_data_set: bool
    sop_class_uid: str
    sop_instance_uid: str
    priority: int | None


def decode(encoded: bytes) -> Command:
    """Raises ProtocolError."""
    values = _values(encoded)
    field = _number(values.get(_COMMAND_FIELD))
    data_set_type = _number(values.get(_COMMAND_DATA_SET_TYPE))
    if field is None or data_set_type is None:
        raise ProtocolError(Reason.INVALID_PARAMETER)
    return Command(
        field,
        _number(values.get(_MESSAGE_ID)),
        data_set_type != _NO_DATA_SET,
        _text(values.get(_AFFECTED_SOP_CLASS_UID)),
        _text(values.get(_AFFECTED_SOP_INSTANCE_UID)),
        _number(values.get(_PRIORITY)),
    )


def _values(encoded: bytes) -> dict[int, bytes]:
    """Element number to value, of group 0000."""
    values: dict[int, bytes] = {}
    position = 0
    while position < len(encoded):
        if position + _ELEMENT.size > len(encoded):
            raise ProtocolError(Reason.INVALID_PARAMETER)
        group, number, length = _ELEMENT.unpack_from(encoded, position)
        position += _ELEMENT.size + length
        if group or position > len(encoded):
            raise ProtocolError(Reason.INVALID_PARAMETER)
        values[number] = encoded[position - length : position]
    return values


def _number(value: bytes | None) -> int | None:
    return int.from_bytes(value, "little") if value is not None and len(value) == 2 else None


def _text(value: bytes | None) -> str:
    return (value or b"").rstrip(b"\0 ").decode("latin-1")


def response(request: Command, status: int, comment: str = "") -> bytes:
    """The response to a request with a Message ID (PS3.7 9.3.1.2, 9.3.5.2)."""
    elements = b"".join(
        (
            _uid(_AFFECTED_SOP_CLASS_UID, request.sop_class_uid),
            _us(_COMMAND_FIELD, request.field | IS_RESPONSE),
            _us(_MESSAGE_ID_BEING_RESPONDED_TO, request.message_id or 0),
            _us(_COMMAND_DATA_SET_TYPE, _NO_DATA_SET),
            _us(_STATUS, status),
            _element(_ERROR_COMMENT, comment.encode("ascii", "replace"), b" "),
            _uid(_AFFECTED_SOP_INSTANCE_UID, request.sop_instance_uid),
        )
    )
    return _ELEMENT.pack(0, 0, 4) + struct.pack("<L", len(elements)) + elements


def _us(number: int, value: int) -> bytes:
    return _ELEMENT.pack(0, number, 2) + value.to_bytes(2, "little")


def _uid(number: int, value: str) -> bytes:
    return _element(number, value.encode("latin-1"), b"\0")


def _element(number: int, value: bytes, padding: bytes) -> bytes:
    """An optional element: nothing without a value."""
    value += padding * (len(value) % 2)
    return _ELEMENT.pack(0, number, len(value)) + value if value else b""
