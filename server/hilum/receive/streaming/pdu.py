"""The PDUs of an established association (PS3.8 9.3.5 to 9.3.8)."""

from __future__ import annotations

import struct
from enum import IntEnum

P_DATA_TF, A_RELEASE_RQ, A_RELEASE_RP, A_ABORT = 0x04, 0x05, 0x06, 0x07
# A-ASSOCIATE-RQ, -AC, -RJ and A-RELEASE-RP: PDUs, but not of this state (PS3.8 Table 9-10, Sta6).
OF_OTHER_STATES = frozenset((0x01, 0x02, 0x03, A_RELEASE_RP))

HEADER = struct.Struct(">BxL")  # type, length of what follows
ITEM = struct.Struct(">LBB")  # of a Presentation Data Value: length from here on, context, message control header (annex E.2)
ITEM_LENGTH_BYTES = 4
IS_COMMAND, IS_LAST = 1, 2

RELEASED = struct.pack(">BxLxxxx", A_RELEASE_RP, 4)


class Reason(IntEnum):
    """Why the provider aborts (PS3.8 Table 9-26)."""

    NOT_SPECIFIED = 0
    UNRECOGNISED_PDU = 1
    UNEXPECTED_PDU = 2
    UNEXPECTED_PARAMETER = 5
    INVALID_PARAMETER = 6


class ProtocolError(Exception):
    """The peer sent what must not be: the association is aborted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


def user_abort() -> bytes:
    """A-ABORT by us who use the service: time-out, or the end of the process."""
    return struct.pack(">BxLxxBB", A_ABORT, 4, 0, 0)


def provider_abort(reason: Reason) -> bytes:
    """A-ABORT by the provider."""
    return struct.pack(">BxLxxBB", A_ABORT, 4, 2, reason)


def p_data(context_id: int, command: bytes, maximum_bytes: int) -> bytes:
    """A command set as P-DATA-TF PDUs of at most this length each (0: any), PS3.8 annex D.1."""
    size = max(1, maximum_bytes - ITEM.size) if maximum_bytes else len(command)
    parts = [command[begin : begin + size] for begin in range(0, len(command), size)]
    return b"".join(_one(context_id, part, is_last=number == len(parts)) for number, part in enumerate(parts, 1))


def _one(context_id: int, part: bytes, *, is_last: bool) -> bytes:
    control = IS_COMMAND | (IS_LAST if is_last else 0)
    return HEADER.pack(P_DATA_TF, ITEM.size + len(part)) + ITEM.pack(len(part) + 2, context_id, control) + part
