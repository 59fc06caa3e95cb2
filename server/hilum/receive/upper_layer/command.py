"""The parts of a request that the loop uses, and its response (PS3.7 9.3.1, 9.3.5)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from hilum.dicom import command_set
from hilum.dicom.command_set import number, text, uid
from hilum.receive.upper_layer.protocol import AbortReason, ProtocolError

UNRECOGNISED_OPERATION = 0x0211  # PS3.7 annex C.5.12
_AFFECTED = command_set.AFFECTED_SOP_CLASS_UID, command_set.AFFECTED_SOP_INSTANCE_UID
_REQUESTED = command_set.REQUESTED_SOP_CLASS_UID, command_set.REQUESTED_SOP_INSTANCE_UID


_TYPE_IDS = {
    command_set.N_ACTION_RQ: command_set.ACTION_TYPE_ID,
    command_set.N_EVENT_REPORT_RQ: command_set.EVENT_TYPE_ID,
}
# Four elements of a response in one structure: they are the same for every request.
_ANSWERED = struct.Struct("<" + 4 * "HHLH")


class Command(NamedTuple):
    """The used fields of a command; missing ones are empty or None.

    The UIDs of an N-ACTION-RQ are its Requested ones. `elements`: all elements, for rare uses.
    """

    field: int
    message_id: int | None
    has_data_set: bool
    sop_class_uid: str
    sop_instance_uid: str
    priority: int | None
    elements: Mapping[int, bytes]

    @property
    def is_response(self) -> bool:
        """Whether it is the response to a request of ours."""
        return bool(self.field & command_set.IS_RESPONSE)

    def number(self, element: int) -> int | None:
        """Return the value of a US element of this number."""
        return number(self.elements.get(element))


def decode(encoded: bytes) -> Command:
    """Return a decoded command. Raises ProtocolError."""
    try:
        values = command_set.decode(encoded)
    except ValueError as error:
        raise ProtocolError(AbortReason.INVALID_PARAMETER) from error
    field = number(values.get(command_set.COMMAND_FIELD))
    data_set_type = number(values.get(command_set.COMMAND_DATA_SET_TYPE))
    if field is None or data_set_type is None:
        raise ProtocolError(AbortReason.INVALID_PARAMETER)
    sop_class, sop_instance = _REQUESTED if field == command_set.N_ACTION_RQ else _AFFECTED
    return Command(
        field,
        number(values.get(command_set.MESSAGE_ID)),
        data_set_type != command_set.NO_DATA_SET,
        text(values.get(sop_class)),
        text(values.get(sop_instance)),
        number(values.get(command_set.PRIORITY)),
        values,
    )


def response(request: Command, status: int, comment: str = "") -> bytes:
    """Return the response to a request with a Message ID (PS3.7 9.3.1.2, 9.3.5.2, 10.3)."""
    answered = _ANSWERED.pack(
        *(0, command_set.COMMAND_FIELD, 2, request.field | command_set.IS_RESPONSE),
        *(0, command_set.MESSAGE_ID_BEING_RESPONDED_TO, 2, request.message_id or 0),
        *(0, command_set.COMMAND_DATA_SET_TYPE, 2, command_set.NO_DATA_SET),
        *(0, command_set.STATUS, 2, status),
    )
    return command_set.with_length(
        command_set.element(command_set.AFFECTED_SOP_CLASS_UID, uid(request.sop_class_uid))
        + answered
        + command_set.element(command_set.ERROR_COMMENT, command_set.comment(comment))
        + command_set.element(command_set.AFFECTED_SOP_INSTANCE_UID, uid(request.sop_instance_uid))
        + _type_id(request)
    )


def _type_id(request: Command) -> bytes:
    """Return the Action Type ID or Event Type ID, as the request has it."""
    if (number := _TYPE_IDS.get(request.field)) is None:
        return b""
    return command_set.element(number, request.elements.get(number, b""))
