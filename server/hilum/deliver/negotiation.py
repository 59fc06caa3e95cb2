"""What is proposed to a receiver and what it makes of it (PS3.8 7.1): pynetdicom's PDU classes write and read the PDUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RJ, A_ASSOCIATE_RQ
from pynetdicom.pdu_primitives import A_ASSOCIATE
from pynetdicom.presentation import PresentationContext

from hilum.dimse.negotiation import APPLICATION_CONTEXT, user_information

_OUR_MAXIMUM_BYTES: Final = 65_536  # of a PDU that we take: answers are short


@dataclass(frozen=True, slots=True)
class Context:
    """A Presentation Context with its answer: `result` as in PS3.8 Table 9-18, 0 is acceptance."""

    context_id: int
    sop_class_uid: str
    transfer_syntax_uid: str
    result: int

    @property
    def is_accepted(self) -> bool:
        """Whether objects may be sent in it."""
        return self.result == 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """A-ASSOCIATE-RJ: PS3.8 Table 9-21."""

    result: int
    source: int
    reason: int


def request(calling: str, called: str, contexts: Sequence[tuple[str, str]]) -> bytes:
    """A-ASSOCIATE-RQ with a context for each (SOP Class UID, Transfer Syntax UID); their IDs are 1, 3, 5 … (PS3.8 9.3.2.2)."""
    primitive = A_ASSOCIATE()
    primitive.application_context_name = APPLICATION_CONTEXT
    primitive.calling_ae_title, primitive.called_ae_title = calling, called
    primitive.presentation_context_definition_list = [_proposed(2 * number + 1, *kind) for number, kind in enumerate(contexts)]
    primitive.user_information = user_information(_OUR_MAXIMUM_BYTES)
    pdu = A_ASSOCIATE_RQ()
    pdu.from_primitive(primitive)
    return bytes(pdu.encode())


def _proposed(context_id: int, sop_class_uid: str, transfer_syntax_uid: str) -> PresentationContext:
    context = PresentationContext()
    context.context_id, context.abstract_syntax, context.transfer_syntax = context_id, sop_class_uid, [transfer_syntax_uid]
    return context


def accepted(pdu: bytes, contexts: Sequence[tuple[str, str]]) -> tuple[tuple[Context, ...], int]:
    """A-ASSOCIATE-AC: each proposed context with its answer, and the largest PDU that the receiver takes, 0: any."""
    answer = A_ASSOCIATE_AC()
    answer.decode(pdu)
    primitive = answer.to_primitive()
    results = {context.context_id: context.result for context in primitive.presentation_context_definition_results_list}
    missing = 1  # PS3.8 Table 9-18: user rejection; a context without an answer is no context
    answered = (Context(2 * number + 1, *kind, results.get(2 * number + 1, missing)) for number, kind in enumerate(contexts))
    return tuple(answered), int(primitive.maximum_length_received or 0)


def rejection(pdu: bytes) -> Rejection:
    """A-ASSOCIATE-RJ."""
    answer = A_ASSOCIATE_RJ()
    answer.decode(pdu)
    return Rejection(int(answer.result), int(answer.source), int(answer.reason_diagnostic))
