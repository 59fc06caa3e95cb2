"""What becomes of an A-ASSOCIATE-RQ.

Answered as pynetdicom reads it, and never an unexpected exception.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom.pdu import A_ASSOCIATE_AC

from hilum import IMPLEMENTATION_CLASS_UID
from hilum.dicom import pdu
from hilum.dicom.associate import Malformed, decode_request
from hilum.receive.association.negotiation import Acceptance, accept
from hilum.receive.upper_layer.first_pdu import read_first_pdu
from hilum.receive.upper_layer.protocol import AbortReason, ProtocolError
from hilum.receive.upper_layer.provider import AcceptedContext
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import VERIFICATION, association_request
from tests.support.peers.wire import pdu as encoded_pdu

CT = "1.2.840.10008.5.1.4.1.1.2"
PROPOSED = [
    (DX, ExplicitVRLittleEndian),
    (VERIFICATION, ImplicitVRLittleEndian),
    (CT, ImplicitVRLittleEndian),
]
REQUEST = association_request("CR1", PROPOSED, 4096)
SUPPORTED: Mapping[str, Sequence[str]] = {
    DX: [ImplicitVRLittleEndian],
    VERIFICATION: [ExplicitVRLittleEndian, ImplicitVRLittleEndian],
}


def answer() -> Acceptance:
    return accept(decode_request(REQUEST), SUPPORTED, 131_072)


def test_each_context_is_answered_as_the_standard_has_it() -> None:
    assert answer().contexts == {3: AcceptedContext(VERIFICATION, ImplicitVRLittleEndian)}
    assert [(item.abstract_syntax, item.is_known) for item in answer().not_accepted] == [
        (DX, True),
        (CT, False),
    ]
    read = A_ASSOCIATE_AC()
    read.decode(answer().encoded)
    primitive = read.to_primitive()
    results = {
        context.context_id: context.result
        for context in primitive.presentation_context_definition_results_list
    }
    assert results == {1: 4, 3: 0, 5: 3}
    assert primitive.maximum_length_received == 131_072
    assert primitive.implementation_class_uid == IMPLEMENTATION_CLASS_UID
    assert (read.reserved_aet.strip(), read.reserved_aec.strip()) == ("HILUM", "CR1")


@given(st.binary(max_size=60), st.integers(0, len(REQUEST)))
def test_a_broken_request_is_a_request_or_malformed(piece: bytes, at: int) -> None:
    broken = REQUEST[:at] + piece + REQUEST[at + len(piece) :]
    with contextlib.suppress(Malformed):
        assert accept(decode_request(broken), SUPPORTED, 131_072).encoded[0] == pdu.ASSOCIATE_AC


@given(st.binary(max_size=400))
def test_whatever_comes_as_a_request_is_one_or_malformed(content: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert decode_request(encoded_pdu(1, content)).maximum_pdu_bytes >= 0


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1", AbortReason.UNRECOGNISED_PDU),
        (pdu.RELEASE, AbortReason.UNEXPECTED_PDU),
        (pdu.HEADER.pack(4, 100), AbortReason.UNEXPECTED_PDU),
        (pdu.HEADER.pack(1, 0xFFFFFFFF), AbortReason.INVALID_PARAMETER),
    ],
)
def test_what_is_no_request_is_known_by_six_bytes(sent: bytes, reason: AbortReason) -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(sent)
        with pytest.raises(ProtocolError) as problem:
            read_first_pdu(ours, 10.0)
    assert problem.value.reason is reason


def test_an_abort_ends_the_connection_and_nothing_is_said() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(pdu.user_abort())
        with pytest.raises(ConnectionResetError):
            read_first_pdu(ours, 10.0)


def test_no_byte_behind_the_request_is_read() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(REQUEST + b"behind")
        assert read_first_pdu(ours, 10.0) == REQUEST
        assert ours.recv(100) == b"behind"


def test_a_request_that_does_not_come_is_waited_for_as_long_as_it_may_take() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(REQUEST[:50])
        with pytest.raises(TimeoutError):
            read_first_pdu(ours, 0.05)
