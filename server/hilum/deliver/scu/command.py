"""The requests of an SCU, and the contents of their responses (PS3.7 9.3.1, 9.3.5, 10.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hilum.dicom import command_set
from hilum.dicom.command_set import number, uid, us
from hilum.dicom.storage_commitment import (
    REQUEST_STORAGE_COMMITMENT,
    STORAGE_COMMITMENT,
    WELL_KNOWN_INSTANCE,
)

_MEDIUM: Final = 0x0000
_VERIFICATION: Final = "1.2.840.10008.1.1"


class NotTheAnswer(Exception):
    """The message is the response to another request, or not a response."""


def store_request(message_id: int, sop_class_uid: str, sop_instance_uid: str) -> bytes:
    """Return a C-STORE-RQ (PS3.7 Table 9.3-1)."""
    return command_set.encode(
        {
            command_set.AFFECTED_SOP_CLASS_UID: uid(sop_class_uid),
            command_set.COMMAND_FIELD: us(command_set.C_STORE_RQ),
            command_set.MESSAGE_ID: us(message_id),
            command_set.PRIORITY: us(_MEDIUM),
            command_set.COMMAND_DATA_SET_TYPE: us(command_set.HAS_DATA_SET),
            command_set.AFFECTED_SOP_INSTANCE_UID: uid(sop_instance_uid),
        }
    )


def echo_request(message_id: int) -> bytes:
    """Return a C-ECHO-RQ (PS3.7 Table 9.3-12)."""
    return command_set.encode(
        {
            command_set.AFFECTED_SOP_CLASS_UID: uid(_VERIFICATION),
            command_set.COMMAND_FIELD: us(command_set.C_ECHO_RQ),
            command_set.MESSAGE_ID: us(message_id),
            command_set.COMMAND_DATA_SET_TYPE: us(command_set.NO_DATA_SET),
        }
    )


def commitment_request(message_id: int) -> bytes:
    """Return the N-ACTION-RQ of a request for storage commitment (PS3.7 Table 10.3-7)."""
    return command_set.encode(
        {
            command_set.REQUESTED_SOP_CLASS_UID: uid(STORAGE_COMMITMENT),
            command_set.COMMAND_FIELD: us(command_set.N_ACTION_RQ),
            command_set.MESSAGE_ID: us(message_id),
            command_set.COMMAND_DATA_SET_TYPE: us(command_set.HAS_DATA_SET),
            command_set.REQUESTED_SOP_INSTANCE_UID: uid(WELL_KNOWN_INSTANCE),
            command_set.ACTION_TYPE_ID: us(REQUEST_STORAGE_COMMITMENT),
        }
    )


def event_response(request: Mapping[int, bytes], status: int, comment: str) -> bytes:
    """Return the N-EVENT-REPORT-RSP to a request with these elements (PS3.7 Table 10.3-2)."""
    repeated = (
        command_set.AFFECTED_SOP_CLASS_UID,
        command_set.AFFECTED_SOP_INSTANCE_UID,
        command_set.EVENT_TYPE_ID,
    )
    return command_set.encode(
        {
            **{number: request.get(number, b"") for number in repeated},
            command_set.COMMAND_FIELD: us(command_set.N_EVENT_REPORT_RQ | command_set.IS_RESPONSE),
            command_set.MESSAGE_ID_BEING_RESPONDED_TO: request.get(command_set.MESSAGE_ID, us(0)),
            command_set.COMMAND_DATA_SET_TYPE: us(command_set.NO_DATA_SET),
            command_set.STATUS: us(status),
            command_set.ERROR_COMMENT: command_set.comment(comment),
        }
    )


@dataclass(frozen=True, slots=True)
class Response:
    """A response: Status (0000,0900) and Error Comment (0000,0902), empty where there is none.

    A comment may name a patient. It is for the terminal of the person that sends, and stands in no
    log and no row.
    """

    status: int
    comment: str = ""


def response_of(encoded: bytes, request: int, message_id: int) -> Response:
    """Return the response to this request. Raises NotTheAnswer."""
    try:
        elements = command_set.decode(encoded)
    except ValueError as error:
        raise NotTheAnswer("it answered with something that is no command set") from error
    field, answered = (
        number(elements.get(item))
        for item in (command_set.COMMAND_FIELD, command_set.MESSAGE_ID_BEING_RESPONDED_TO)
    )
    status = number(elements.get(command_set.STATUS))
    if (field, answered) != (request | command_set.IS_RESPONSE, message_id) or status is None:
        raise NotTheAnswer("it answered something else")
    return Response(status, command_set.comment_text(elements.get(command_set.ERROR_COMMENT)))
