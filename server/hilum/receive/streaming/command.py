"""What the loop uses of a request, and its response (PS3.7 9.3.1, 9.3.5)."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.dimse import command_set, pdu
from hilum.dimse.command_set import number, text, uid, us
from hilum.receive.streaming.protocol import ProtocolError, Reason

UNRECOGNISED_OPERATION = 0x0211  # PS3.7 annex C.5.12


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
    try:
        values = command_set.decode(encoded)
    except ValueError as error:
        raise ProtocolError(Reason.INVALID_PARAMETER) from error
    field = number(values.get(command_set.COMMAND_FIELD))
    data_set_type = number(values.get(command_set.COMMAND_DATA_SET_TYPE))
    if field is None or data_set_type is None:
        raise ProtocolError(Reason.INVALID_PARAMETER)
    return Command(
        field,
        number(values.get(command_set.MESSAGE_ID)),
        data_set_type != command_set.NO_DATA_SET,
        text(values.get(command_set.AFFECTED_SOP_CLASS_UID)),
        text(values.get(command_set.AFFECTED_SOP_INSTANCE_UID)),
        number(values.get(command_set.PRIORITY)),
    )


def response(request: Command, status: int, comment: str = "") -> bytes:
    """The response to a request with a Message ID (PS3.7 9.3.1.2, 9.3.5.2)."""
    return command_set.encode(
        {
            command_set.AFFECTED_SOP_CLASS_UID: uid(request.sop_class_uid),
            command_set.COMMAND_FIELD: us(request.field | command_set.IS_RESPONSE),
            command_set.MESSAGE_ID_BEING_RESPONDED_TO: us(request.message_id or 0),
            command_set.COMMAND_DATA_SET_TYPE: us(command_set.NO_DATA_SET),
            command_set.STATUS: us(status),
            command_set.ERROR_COMMENT: command_set.comment(comment),
            command_set.AFFECTED_SOP_INSTANCE_UID: uid(request.sop_instance_uid),
        }
    )


def p_data(context_id: int, encoded: bytes, maximum_bytes: int) -> bytes:
    """A command set as P-DATA-TF PDUs of at most this length each (0: any), PS3.8 annex D.1."""
    size = max(1, maximum_bytes - pdu.ITEM.size) if maximum_bytes else len(encoded)
    parts = (encoded[begin : begin + size] for begin in range(0, len(encoded), size))
    return b"".join(pdu.p_data(context_id, parts, is_command=True))
