"""The proposal to a receiver and its response (PS3.8 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hilum.dicom import associate
from hilum.dicom.associate import ACCEPTANCE, USER_REJECTION, Proposed

_OUR_MAXIMUM_BYTES: Final = 65_536  # largest PDU that we take: responses are short


@dataclass(frozen=True, slots=True)
class ProposedContext:
    """A Presentation Context with its result (PS3.8 Table 9-18), 0 is acceptance."""

    context_id: int
    sop_class_uid: str
    transfer_syntax_uid: str
    result: int

    @property
    def is_accepted(self) -> bool:
        """Whether objects may be sent in it."""
        return self.result == ACCEPTANCE


@dataclass(frozen=True, slots=True)
class AssociateRejection:
    """The fields of an A-ASSOCIATE-RJ (PS3.8 Table 9-21)."""

    result: int
    source: int
    reason: int


def request(
    calling: str, called: str, contexts: Sequence[tuple[str, str]], scp_of: Sequence[str] = ()
) -> bytes:
    """Return an A-ASSOCIATE-RQ with a context for each (SOP Class UID, Transfer Syntax UID).

    Their IDs are 1, 3, 5 … (PS3.8 9.3.2.2). `scp_of`: SOP Classes of which we are the SCP.
    """
    proposed = [
        Proposed(2 * number + 1, sop_class, (syntax,))
        for number, (sop_class, syntax) in enumerate(contexts)
    ]
    return associate.encode_request(calling, called, proposed, _OUR_MAXIMUM_BYTES, scp_of)


def accepted(
    encoded: bytes, contexts: Sequence[tuple[str, str]]
) -> tuple[tuple[ProposedContext, ...], int]:
    """Return each proposed context with its result, and the largest PDU that the receiver takes.

    Both come from an A-ASSOCIATE-AC. 0 means a PDU of any length. Raises Malformed.
    """
    answered, maximum_pdu_bytes = associate.decode_acceptance(encoded)
    results = {context.context_id: context.result for context in answered}
    found = (  # a context without a result counts as rejected
        ProposedContext(2 * number + 1, *kind, results.get(2 * number + 1, USER_REJECTION))
        for number, kind in enumerate(contexts)
    )
    return tuple(found), maximum_pdu_bytes


def rejection(encoded: bytes) -> AssociateRejection:
    """Return the fields of an A-ASSOCIATE-RJ. Raises Malformed."""
    return AssociateRejection(*associate.decode_rejection(encoded))
