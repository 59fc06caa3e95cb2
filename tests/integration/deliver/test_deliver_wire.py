"""What a receiver may say that it should not, and what goes over the wire, against a socket and against pynetdicom's own decoders."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from pydicom.uid import ExplicitVRLittleEndian
from pynetdicom import dsutils
from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RQ, P_DATA_TF
from pynetdicom.pdu_primitives import MaximumLengthNotification
from pynetdicom.sop_class import Comprehensive3DSRStorage

from hilum.deliver.client import UnknownOutcome
from hilum.deliver.scu import command
from hilum.deliver.scu.association import OutgoingMessage, Peer, ScuAssociation, associate
from hilum.dicom import command_set
from hilum.dicom.pdu import p_data
from hilum.errors import Retry
from tests.support.peers.odd_user_information import ODD_USER_INFORMATION
from tests.support.peers.wire import item
from tests.support.peers.wire import pdu as encoded_pdu

CONTEXTS = [(str(Comprehensive3DSRStorage), str(ExplicitVRLittleEndian))]
RELEASE_RQ, RELEASE_RP, ABORT = (bytes([kind, 0, 0, 0, 0, 4, 0, 0, 0, 0]) for kind in (5, 6, 7))
Answer = Callable[[socket.socket], None]


def whole_pdu(connection: socket.socket) -> bytes:
    header = connection.recv(6, socket.MSG_WAITALL)
    return (
        header + connection.recv(int.from_bytes(header[2:6], "big"), socket.MSG_WAITALL)
        if header
        else b""
    )


def acceptance(request: bytes, maximum: int | None = None) -> bytes:
    """Everything accepted, in PDUs of at most so many bytes."""
    asked = A_ASSOCIATE_RQ()
    asked.decode(request)
    primitive = asked.to_primitive()
    primitive.result = 0
    for context in primitive.presentation_context_definition_list:
        context.result = 0
    primitive.presentation_context_definition_results_list = (
        primitive.presentation_context_definition_list
    )
    if maximum is not None:
        next(
            item
            for item in primitive.user_information
            if isinstance(item, MaximumLengthNotification)
        ).maximum_length_received = maximum
    answer = A_ASSOCIATE_AC()
    answer.from_primitive(primitive)
    return bytes(answer.encode())


@contextlib.contextmanager
def peer_that(
    answers: Answer, *, accepts: bool = True, maximum: int | None = None
) -> Iterator[Peer]:
    """A receiver that accepts the association (or not even that) and then does what the test asks."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            request = whole_pdu(connection)
            if accepts:
                connection.sendall(acceptance(request, maximum))
            answers(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Peer("127.0.0.1", listening.getsockname()[1], "PACS", "HILUM", timeout_seconds=5.0)
        thread.join(timeout=10)


def response(message_id: int = 1, field: int = 0x8001, status: int = 0) -> bytes:
    """A C-STORE-RSP in one P-DATA-TF."""
    elements = {0x0100: field, 0x0120: message_id, 0x0800: 0x0101, 0x0900: status}
    encoded = command_set.encode(
        {number: value.to_bytes(2, "little") for number, value in elements.items()}
    )
    return b"".join(p_data(1, [encoded], is_command=True))


def after_the_object(*said: bytes) -> Answer:
    """Read command set and data set, then say this."""

    def answer(connection: socket.socket) -> None:
        for _ in range(2):
            whole_pdu(connection)
        for piece in said:
            connection.sendall(piece)
        whole_pdu(connection)

    return answer


def store(association: ScuAssociation) -> None:
    content = bytes(64)
    association.store(
        OutgoingMessage(*CONTEXTS[0][:1], "1.2.3", CONTEXTS[0][1], BytesIO(content), len(content))
    )


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x04\x00\x7f\xff\xff\xff",
        response(message_id=2),
        response(field=0x8030),
        b"\x04\x00\x00\x00\x00\x06\x00\x00\x00\xff\x01\x03",
        ABORT,
        RELEASE_RQ,
        b"",
    ],
    ids=[
        "http",
        "oversized",
        "other-message",
        "other-command",
        "broken-pdv",
        "abort",
        "release",
        "silence-then-end",
    ],
)
def test_an_answer_that_is_none_leaves_the_outcome_unknown_and_ends_the_association(
    said: bytes,
) -> None:
    def answer(connection: socket.socket) -> None:
        for _ in range(2):
            whole_pdu(connection)
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        whole_pdu(connection)

    with peer_that(answer) as peer:
        association = associate(peer, CONTEXTS)
        with pytest.raises(UnknownOutcome, match="same bytes are sent again"):
            store(association)
        assert not association.is_established


def test_an_answer_in_many_pieces_is_one_answer() -> None:
    encoded = command_set.encode(
        {0x0100: b"\x01\x80", 0x0120: b"\x01\x00", 0x0800: b"\x01\x01", 0x0900: b"\x00\x00"}
    )
    pieces = list(
        p_data(
            1, [encoded[start : start + 7] for start in range(0, len(encoded), 7)], is_command=True
        )
    )
    assert len(pieces) > 4
    with peer_that(after_the_object(*(bytes([byte]) for byte in b"".join(pieces)))) as peer:
        association = associate(peer, CONTEXTS)
        store(association)
        assert association.is_established
        association.abort()


def test_what_is_no_dicom_port_is_said_to_be_none() -> None:
    with (
        peer_that(
            lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), accepts=False
        ) as peer,
        pytest.raises(Retry) as caught,
    ):
        associate(peer, CONTEXTS)
    assert "no DICOM" in caught.value.detail
    assert caught.value.is_outage


def test_an_acceptance_that_cannot_be_read_is_said_to_be_one_and_is_no_outage() -> None:
    broken = b"\x02\x00\x00\x00\x00\x50" + b"\xff" * 80
    with (
        peer_that(lambda connection: connection.sendall(broken), accepts=False) as peer,
        pytest.raises(
            Retry, match=r"an A-ASSOCIATE-AC that cannot be read \(an item of type FF is longer"
        ) as caught,
    ):
        associate(peer, CONTEXTS)
    assert not caught.value.is_outage


@pytest.mark.parametrize("name", ODD_USER_INFORMATION)
def test_a_receiver_that_says_odd_things_of_itself_gets_its_documents(name: str) -> None:
    fixed = struct.pack(">H2x16s16s32x", 1, "PÄCS".encode("latin-1").ljust(16, b"\0"), b" " * 16)
    context = item(0x21, bytes((1, 0, 0, 0)) + item(0x40, CONTEXTS[0][1].encode() + b"\0"))
    accepting = encoded_pdu(
        2,
        fixed
        + item(0x10, b"1.2.840.10008.3.1.1.1")
        + context
        + item(0x50, ODD_USER_INFORMATION[name]),
    )

    def answer(connection: socket.socket) -> None:
        connection.sendall(accepting)
        after_the_object(response())(connection)

    with peer_that(answer, accepts=False) as peer:
        association = associate(peer, CONTEXTS)
        store(association)
        association.abort()


@pytest.mark.parametrize(
    ("said", "answer"),
    [(RELEASE_RQ, RELEASE_RP), (ABORT, b""), (b"", b"")],
    ids=["release", "abort", "gone"],
)
def test_who_speaks_while_idle_ends_the_association(said: bytes, answer: bytes) -> None:
    heard: list[bytes] = []
    has_spoken = threading.Event()

    def end(connection: socket.socket) -> None:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        has_spoken.set()
        heard.append(whole_pdu(connection))

    with peer_that(end) as peer:
        association = associate(peer, CONTEXTS)
        assert has_spoken.wait(60)
        deadline = threading.Event()
        for _ in range(100):  # loopback may take a moment
            if not association.is_established:
                break
            deadline.wait(0.02)
        assert not association.is_established
    assert heard == [answer]


def test_the_command_set_is_what_pynetdicom_reads() -> None:
    encoded = command.store_request(7, "1.2.840.10008.5.1.4.1.1.88.34", "2.25.123")
    read = dsutils.decode(BytesIO(encoded), True, True)
    assert read.CommandGroupLength == len(encoded) - 12
    assert (read.AffectedSOPClassUID, read.AffectedSOPInstanceUID) == (
        "1.2.840.10008.5.1.4.1.1.88.34",
        "2.25.123",
    )
    assert (read.CommandField, read.MessageID, read.Priority, read.CommandDataSetType) == (
        0x0001,
        7,
        0,
        0,
    )
    echo = dsutils.decode(BytesIO(command.echo_request(9)), True, True)
    assert (echo.CommandField, echo.MessageID, echo.CommandDataSetType) == (0x0030, 9, 0x0101)


def test_fragments_are_p_data_that_pynetdicom_reads() -> None:
    pieces = list(p_data(3, [b"ab", b"cd", b"ef"], is_command=False))
    values = []
    for header, fragment in zip(pieces[::2], pieces[1::2], strict=True):
        pdu = P_DATA_TF()
        pdu.decode(header + fragment)
        (value,) = pdu.to_primitive().presentation_data_value_list
        values.append(value)
    assert values == [(3, b"\x00ab"), (3, b"\x00cd"), (3, b"\x02ef")]


@pytest.mark.parametrize("most", [128, 250, 2048, 4095])
def test_no_pdu_is_longer_than_the_receiver_takes(most: int) -> None:
    """PS3.8 annex D.1; the command set is parted, too."""
    seen = []

    def answer(connection: socket.socket) -> None:
        while not any(
            pdv[1] & 2 and not pdv[1] & 1 for pdu in seen for pdv in [(pdu[10], pdu[11])]
        ):
            seen.append(whole_pdu(connection))
        connection.sendall(response())
        whole_pdu(connection)

    with peer_that(answer, maximum=most) as peer:
        association = associate(peer, CONTEXTS)
        content = bytes(range(256)) * 40
        association.store(
            OutgoingMessage(
                CONTEXTS[0][0], "1.2." + 60 * "3", CONTEXTS[0][1], BytesIO(content), len(content)
            )
        )
        association.abort()
    assert max(int.from_bytes(pdu[2:6], "big") for pdu in seen) <= most
    assert b"".join(pdu[12:] for pdu in seen if not pdu[11] & 1) == content
    assert len([pdu for pdu in seen if pdu[11] & 1]) == (2 if most == 128 else 1)


def test_a_release_that_meets_the_receivers_own_is_answered() -> None:
    """PS3.8 9.2, AR-8 and AR-9."""
    heard = []

    def answer(connection: socket.socket) -> None:
        heard.append(whole_pdu(connection))
        connection.sendall(RELEASE_RQ)
        heard.append(whole_pdu(connection))
        connection.sendall(RELEASE_RP)

    with peer_that(answer) as peer:
        associate(peer, CONTEXTS).release()
    assert heard == [RELEASE_RQ, RELEASE_RP]


def test_message_ids_start_again_after_the_last() -> None:
    with peer_that(after_the_object(response(message_id=65_535))) as peer:
        association = associate(peer, CONTEXTS)
        association._message_id = 65_534
        store(association)
        assert association._next_id() == 1
        association.abort()
