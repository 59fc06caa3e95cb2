"""The messages of a request for storage commitment, in the order that a peer chooses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping

import pytest

from hilum.deliver.client import UnknownOutcome
from hilum.deliver.scu.association import Peer, ScuAssociation
from hilum.deliver.scu.connection import SocketReader
from hilum.deliver.scu.negotiation import ProposedContext
from hilum.dicom import command_set, pdu
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT, WELL_KNOWN_INSTANCE

IMPLICIT = "1.2.840.10008.1.2"
CONTEXT = ProposedContext(3, STORAGE_COMMITMENT, IMPLICIT, 0)
REPORT = b"the report of the peer"


class Wire:
    """Our association, and the socket of the peer."""

    def __init__(self, timeout_seconds: float = 10.0) -> None:
        # AF_UNIX has no TCP_QUICKACK
        listening = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listening.getsockname())
        self.peer, _ = listening.accept()
        listening.close()
        peer = Peer("127.0.0.1", 104, "PACS", "HILUM", timeout_seconds)
        reader = SocketReader(ours, timeout_seconds)
        self.association = ScuAssociation(peer, reader, (CONTEXT,), 0)
        self.taken: list[tuple[str, bytes]] = []

    def take(
        self, elements: Mapping[int, bytes], transfer_syntax_uid: str, encoded: bytes
    ) -> tuple[int, str]:
        assert command_set.number(elements[command_set.EVENT_TYPE_ID]) == 1
        self.taken.append((transfer_syntax_uid, encoded))
        return 0x0115, "unknown"

    def says(self, *messages: bytes) -> None:
        self.peer.sendall(b"".join(messages))

    def heard(self) -> bytes:
        """All that the peer got until our end."""
        self.association.abort()
        found = bytearray()
        while piece := self.peer.recv(65536):
            found += piece
        return bytes(found)


@pytest.fixture
def wire() -> Iterator[Wire]:
    opened = Wire()
    yield opened
    opened.association.abort()
    opened.peer.close()


def response(data_set_type: int = command_set.NO_DATA_SET) -> bytes:
    elements = {
        command_set.COMMAND_FIELD: command_set.us(command_set.N_ACTION_RQ | 0x8000),
        command_set.MESSAGE_ID_BEING_RESPONDED_TO: command_set.us(1),
        command_set.COMMAND_DATA_SET_TYPE: command_set.us(data_set_type),
        command_set.STATUS: command_set.us(0),
    }
    return pdu.message(3, command_set.encode(elements), 0, is_command=True)


def event(size: int = 16_384, context_id: int = 3) -> bytes:
    elements = {
        command_set.AFFECTED_SOP_CLASS_UID: command_set.uid(STORAGE_COMMITMENT),
        command_set.COMMAND_FIELD: command_set.us(command_set.N_EVENT_REPORT_RQ),
        command_set.MESSAGE_ID: command_set.us(77),
        command_set.COMMAND_DATA_SET_TYPE: command_set.us(command_set.HAS_DATA_SET),
        command_set.AFFECTED_SOP_INSTANCE_UID: command_set.uid(WELL_KNOWN_INSTANCE),
        command_set.EVENT_TYPE_ID: command_set.us(1),
    }
    encoded = command_set.encode(elements)
    return pdu.message(context_id, encoded, size, is_command=True) + pdu.message(
        context_id, REPORT, size, is_command=False
    )


def test_a_report_before_the_response_is_taken_and_answered(wire: Wire) -> None:
    wire.says(event(), response())
    assert wire.association.request_commitment(CONTEXT, b"objects", wire.take).status == 0
    assert wire.taken == [(IMPLICIT, REPORT)]
    heard = wire.heard()
    assert command_set.element(command_set.STATUS, command_set.us(0x0115)) in heard
    answered = command_set.MESSAGE_ID_BEING_RESPONDED_TO
    assert command_set.element(answered, command_set.us(77)) in heard


def test_a_report_in_many_small_pieces_is_one(wire: Wire) -> None:
    wire.says(event(size=16))
    wire.association.await_event(60.0, wire.take)
    assert wire.taken == [(IMPLICIT, REPORT)]


def test_without_a_report_the_association_can_still_be_released(wire: Wire) -> None:
    wire.association.await_event(0.0, wire.take)
    wire.association.await_event(60.0, wire.take, lambda: True)
    assert wire.taken == []
    wire.says(pdu.RELEASED)
    wire.association.release()
    assert wire.heard() == pdu.RELEASE


def test_a_peer_that_releases_instead_gets_its_response(wire: Wire) -> None:
    wire.says(pdu.RELEASE)
    wire.association.await_event(60.0, wire.take)
    assert wire.taken == []
    assert wire.heard() == pdu.RELEASED


@pytest.mark.parametrize(
    "said",
    [
        pdu.user_abort(),
        pdu.RELEASE,
        pdu.message(3, b"no command set", 0, is_command=True),
        event() + pdu.user_abort(),
        response()[:20],
        event(context_id=5) + response(),
        response(command_set.HAS_DATA_SET) + response(),
    ],
    ids=[
        "abort",
        "release",
        "noise",
        "a report, then an abort",
        "half a response",
        "a report in a context that was not proposed",
        "a second command set in place of a data set",
    ],
)
def test_without_a_response_the_outcome_is_unknown(wire: Wire, said: bytes) -> None:
    wire.says(said)
    wire.peer.shutdown(socket.SHUT_WR)
    with pytest.raises(UnknownOutcome, match="gave no answer"):
        wire.association.request_commitment(CONTEXT, b"objects", wire.take)


def test_a_report_in_a_context_that_was_not_proposed_ends_the_association(wire: Wire) -> None:
    wire.says(event(context_id=5))
    wire.association.await_event(60.0, wire.take)
    assert wire.taken == []
    assert not wire.association.is_established


def test_reports_without_end_are_no_response() -> None:
    wire = Wire(timeout_seconds=0.5)
    sending = threading.Thread(target=_send_without_end, args=(wire, event()), daemon=True)
    hearing = threading.Thread(target=_hear, args=(wire,), daemon=True)
    sending.start()
    hearing.start()
    with pytest.raises(UnknownOutcome, match="gave no answer"):
        wire.association.request_commitment(CONTEXT, b"objects", wire.take)
    assert wire.taken
    sending.join(60)
    hearing.join(60)
    wire.peer.close()


def test_a_report_of_empty_pieces_without_end_ends_the_association(wire: Wire) -> None:
    empty = pdu.ITEM.pack(2, 3, 0) * 100_000
    begun = event()[: -(len(REPORT) + 12)]
    piece = pdu.HEADER.pack(pdu.P_DATA_TF, len(empty)) + empty
    wire.peer.settimeout(60)
    sending = threading.Thread(target=_send, args=(wire, begun + piece * 8), daemon=True)
    sending.start()
    wire.association.await_event(60.0, wire.take)
    assert wire.taken == []
    assert not wire.association.is_established
    sending.join(60)


def test_a_report_without_end_ends_the_association(wire: Wire) -> None:
    begun = event()[: -(len(REPORT) + 12)]
    more = b"".join(pdu.p_data(3, [bytes(1 << 20)] * 6, is_command=False))
    wire.peer.settimeout(60)
    sending = threading.Thread(target=_send, args=(wire, begun + more), daemon=True)
    sending.start()
    wire.association.await_event(60.0, wire.take)
    assert wire.taken == []
    sending.join(60)


def _send(wire: Wire, content: bytes) -> None:
    try:
        wire.says(content)
    except OSError:  # it was hung up on
        return


def _send_without_end(wire: Wire, content: bytes) -> None:
    try:
        while True:
            wire.says(content)
    except OSError:  # it was hung up on
        return


def _hear(wire: Wire) -> None:
    try:
        while wire.peer.recv(65536):
            pass
    except OSError:  # it was hung up on
        return
