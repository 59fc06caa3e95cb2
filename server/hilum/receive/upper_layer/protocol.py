"""Rules for PDUs beyond their bytes: those of the loop's state, and the reasons of an abort.

See PS3.8 Tables 9-10 and 9-26.
"""

from __future__ import annotations

from enum import IntEnum

from hilum.dicom import pdu

# PDUs, but not of an established association (Sta6).
OF_OTHER_STATES = frozenset((pdu.ASSOCIATE_RQ, pdu.ASSOCIATE_AC, pdu.ASSOCIATE_RJ, pdu.RELEASE_RP))


class AbortReason(IntEnum):
    """The reason of an abort by the provider (PS3.8 Table 9-26)."""

    NOT_SPECIFIED = 0
    UNRECOGNISED_PDU = 1
    UNEXPECTED_PDU = 2
    UNEXPECTED_PARAMETER = 5
    INVALID_PARAMETER = 6


class ProtocolError(Exception):
    """A violation of the protocol by the peer: the association is aborted."""

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason.name)
        self.reason = reason
