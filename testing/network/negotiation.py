"""Association negotiation (PS3.8 7.1, PS3.7 D.3) of the load test's own SCU and SCP, encoded by pynetdicom's PDU classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydicom.uid import UID
from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RJ, A_ASSOCIATE_RQ
from pynetdicom.pdu_primitives import (
    A_ASSOCIATE,
    ImplementationClassUIDNotification,
    MaximumLengthNotification,
)
from pynetdicom.presentation import PresentationContext

from testing.phantoms.phantom_modules import IMPLEMENTATION_UID

APPLICATION_CONTEXT = UID("1.2.840.10008.3.1.1.1")
# PS3.8 Table 9-18
_ACCEPTED = 0
_CLASS_NOT_SUPPORTED = 3
_SYNTAXES_NOT_SUPPORTED = 4
MAXIMUM_PDU_BYTES = 262_144  # what we take ourselves

Kind = tuple[str, str]
"""SOP Class UID, Transfer Syntax UID."""


def request(calling: str, called: str, kinds: Sequence[Kind]) -> tuple[bytes, dict[int, Kind]]:
    """A-ASSOCIATE-RQ with a Presentation Context for each kind; odd numbers from 1 (PS3.8 9.3.2.2).

    At most 128 kinds.
    """
    contexts = {2 * index + 1: kind for index, kind in enumerate(kinds)}
    primitive = _primitive(calling, called)
    primitive.presentation_context_definition_list = [
        _context(number, *kind) for number, kind in contexts.items()
    ]
    pdu = A_ASSOCIATE_RQ()
    pdu.from_primitive(primitive)
    return bytes(pdu.encode()), contexts


def accepted(pdu: bytes, proposed: Mapping[int, Kind]) -> tuple[dict[Kind, int], int]:
    """A-ASSOCIATE-AC → Presentation Context ID of each kind that the peer takes, and the largest PDU that it takes (0: any)."""
    answer = A_ASSOCIATE_AC()
    answer.decode(pdu)
    primitive = answer.to_primitive()
    contexts = primitive.presentation_context_definition_results_list
    taken = {
        proposed[context.context_id]: context.context_id
        for context in contexts
        if context.result == _ACCEPTED
    }
    return taken, int(primitive.maximum_length_received or 0)


def rejection(pdu: bytes) -> str:
    """A-ASSOCIATE-RJ in words."""
    answer = A_ASSOCIATE_RJ()
    answer.decode(pdu)
    return f"association rejected ({answer.result},{answer.source},{answer.reason_diagnostic})"


def answer(
    pdu: bytes, sop_classes: Sequence[str], syntaxes: Sequence[str]
) -> tuple[bytes, dict[int, str], int]:
    """A-ASSOCIATE-RQ → A-ASSOCIATE-AC, Transfer Syntax of each context that is accepted, and the largest PDU that the peer takes."""
    asked = A_ASSOCIATE_RQ()
    asked.decode(pdu)
    wanted = asked.to_primitive()
    results = [
        _decided(context, sop_classes, syntaxes)
        for context in wanted.presentation_context_definition_list
    ]
    primitive = _primitive(wanted.calling_ae_title, wanted.called_ae_title)
    primitive.result = 0
    primitive.presentation_context_definition_results_list = results
    reply = A_ASSOCIATE_AC()
    reply.from_primitive(primitive)
    taken = {
        context.context_id: str(context.transfer_syntax[0])
        for context in results
        if context.result == _ACCEPTED
    }
    return bytes(reply.encode()), taken, int(wanted.maximum_length_received or 0)


def _primitive(calling: str, called: str) -> Any:  # noqa: ANN401 - pynetdicom ships no types
    primitive = A_ASSOCIATE()
    primitive.application_context_name = APPLICATION_CONTEXT
    primitive.calling_ae_title = calling
    primitive.called_ae_title = called
    length = MaximumLengthNotification()
    implementation = ImplementationClassUIDNotification()
    length.maximum_length_received = MAXIMUM_PDU_BYTES
    implementation.implementation_class_uid = IMPLEMENTATION_UID
    primitive.user_information = [length, implementation]
    return primitive


def _context(number: int, sop_class: str, syntax: str) -> PresentationContext:
    context = PresentationContext()
    context.context_id = number
    context.abstract_syntax = sop_class
    context.transfer_syntax = [syntax]
    return context


def _decided(
    asked: PresentationContext, sop_classes: Sequence[str], syntaxes: Sequence[str]
) -> PresentationContext:
    common = [syntax for syntax in asked.transfer_syntax if syntax in syntaxes]
    context = _context(
        asked.context_id, asked.abstract_syntax, (common or asked.transfer_syntax)[0]
    )
    is_known = asked.abstract_syntax in sop_classes
    context.result = (
        _CLASS_NOT_SUPPORTED if not is_known else _ACCEPTED if common else _SYNTAXES_NOT_SUPPORTED
    )
    return context
