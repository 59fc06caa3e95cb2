"""An A-ASSOCIATE-RQ and its answer (PS3.8 7.1, 9.3.2, 9.3.3), by pynetdicom's PDU classes."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RQ
from pynetdicom.pdu_primitives import A_ASSOCIATE
from pynetdicom.presentation import PresentationContext, build_context, negotiate_as_acceptor

from hilum.dimse.negotiation import APPLICATION_CONTEXT, user_information
from hilum.receive.advice import NotAccepted
from hilum.receive.streaming.protocol import ProtocolError, Reason
from hilum.receive.streaming.provider import Context

_ITEM = struct.Struct(">BxH")
_FIXED_BYTES: Final = 74  # before the first item, with the header of the PDU
_CONTEXT_BYTES: Final = 4  # of a Presentation Context Item before its sub-items
_PRESENTATION_CONTEXT, _USER_INFORMATION = 0x20, 0x50
# pynetdicom makes objects of each. 128 contexts with 60 Transfer Syntaxes are fewer.
_MAXIMUM_ITEMS: Final = 8192
_SYNTAXES_NOT_SUPPORTED = 4  # PS3.8 Table 9-18
_decoding = threading.Lock()
"""One request at a time becomes objects, which take many times its bytes."""


@dataclass(frozen=True, slots=True)
class AssociateRequest:
    """What we use of an A-ASSOCIATE-RQ.

    `maximum_pdu_bytes`: of a PDU that the peer takes, 0: any. `contexts` are pynetdicom's.
    """

    protocol_version: int
    called_ae_title: str
    calling_ae_title: str
    maximum_pdu_bytes: int
    contexts: Sequence[PresentationContext]

    @property
    def abstract_syntaxes(self) -> list[str]:
        """Of the contexts, in their order."""
        return [str(context.abstract_syntax) for context in self.contexts]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An A-ASSOCIATE-AC.

    `contexts`: those accepted, by ID. `not_accepted`: SOP Classes of which no context is accepted.
    `maximum_pdu_bytes`: of a PDU that the peer takes, 0: any.
    """

    encoded: bytes
    contexts: Mapping[int, Context]
    not_accepted: tuple[NotAccepted, ...]
    maximum_pdu_bytes: int


def decode_request(encoded: bytes) -> AssociateRequest:
    """Raises ProtocolError."""
    if sum(1 for _ in _items(encoded)) > _MAXIMUM_ITEMS:
        raise ProtocolError(Reason.INVALID_PARAMETER)
    try:
        with _decoding:
            return _decoded(encoded)
    except Exception as error:  # pynetdicom raises all sorts of things for broken bytes
        raise ProtocolError(Reason.INVALID_PARAMETER) from error


def _items(encoded: bytes) -> Iterator[int]:
    """The type of each item and sub-item, as far as they can be followed."""
    for kind, start, end in _siblings(encoded, _FIXED_BYTES, len(encoded)):
        yield kind
        if kind in (_PRESENTATION_CONTEXT, _USER_INFORMATION):
            inner = start + _CONTEXT_BYTES if kind == _PRESENTATION_CONTEXT else start
            yield from (sub_kind for sub_kind, _, _ in _siblings(encoded, inner, end))


def _siblings(encoded: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    while at + _ITEM.size <= end:
        kind, length = _ITEM.unpack_from(encoded, at)
        start = at + _ITEM.size
        at = start + length
        yield kind, start, min(at, end)


def _decoded(encoded: bytes) -> AssociateRequest:
    pdu = A_ASSOCIATE_RQ()
    pdu.decode(encoded)
    primitive = pdu.to_primitive()
    return AssociateRequest(
        protocol_version=int(pdu.protocol_version),
        called_ae_title=str(primitive.called_ae_title),
        calling_ae_title=str(primitive.calling_ae_title),
        maximum_pdu_bytes=int(primitive.maximum_length_received or 0),
        contexts=tuple(primitive.presentation_context_definition_list),
    )


def accept(request: AssociateRequest, supported: Mapping[str, Sequence[str]], maximum_pdu_bytes: int) -> Acceptance:
    """Accept what is supported of what is proposed.

    `supported`: Transfer Syntaxes in order of preference, by SOP Class. `maximum_pdu_bytes`: ours.
    Raises ProtocolError for a context without an Abstract or a Transfer Syntax (PS3.8 9.3.2.2).
    """
    if not all(context.abstract_syntax and context.transfer_syntax for context in request.contexts):
        raise ProtocolError(Reason.INVALID_PARAMETER)
    ours = [build_context(abstract, list(syntaxes)) for abstract, syntaxes in supported.items()]
    results, _ = negotiate_as_acceptor(list(request.contexts), ours)
    contexts = {
        context.context_id: Context(str(context.abstract_syntax), str(context.transfer_syntax[0]))
        for context in results
        if context.result == 0
    }
    encoded = _encoded(request, results, maximum_pdu_bytes)
    return Acceptance(encoded, contexts, _not_accepted(results, contexts), request.maximum_pdu_bytes)


def _not_accepted(results: Sequence[Any], contexts: Mapping[int, Context]) -> tuple[NotAccepted, ...]:
    accepted = {context.sop_class_uid for context in contexts.values()}
    return tuple(
        NotAccepted(context.abstract_syntax, is_known=context.result == _SYNTAXES_NOT_SUPPORTED)
        for context in results
        if context.result != 0 and context.abstract_syntax not in accepted
    )


def _encoded(request: AssociateRequest, results: Sequence[Any], maximum_pdu_bytes: int) -> bytes:
    """A-ASSOCIATE-AC."""
    primitive = A_ASSOCIATE()
    primitive.application_context_name = APPLICATION_CONTEXT
    primitive.calling_ae_title, primitive.called_ae_title = request.calling_ae_title, request.called_ae_title
    primitive.result, primitive.result_source = 0, 1
    primitive.presentation_context_definition_results_list = list(results)
    primitive.user_information = user_information(maximum_pdu_bytes)
    pdu = A_ASSOCIATE_AC()
    pdu.from_primitive(primitive)
    return bytes(pdu.encode())
