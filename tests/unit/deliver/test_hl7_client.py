"""The client of HL7 v2 over MLLP, against receivers that answer in every way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from hilum.deliver import DestinationClient, ReceiverBusy, UnknownOutcome
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.deliver.hl7 import Hl7Client
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.settings import Hl7Destination, Pipeline
from tests.support.hl7.scripted_receiver import (
    Answer,
    ScriptedReceiver,
    acknowledging,
    closing,
    framed,
    message,
    silent,
    writing,
)
from tests.support.peers.peers import free_port

SHORT = 0.3  # seconds until a receiver that does not answer is given up
Client = TypeVar("Client", bound=DestinationClient)
NAME = "Weiß^Jürgen"


def document(number: int = 1, character_set: str = "UNICODE UTF-8", name: str = "Roe") -> Document:
    codec = "utf-8" if character_set == "UNICODE UTF-8" else "iso-8859-1"
    text = (
        f"MSH|^~\\&|HILUM||||20261126||ORU^R01^ORU_R01|ID{number}|P|2.5.1||||||{character_set}\r"
        f"PID|1||P1||{name}\r"
    )
    return Document("hl7", "x-application/hl7-v2+er7", text.encode(codec))


@contextlib.contextmanager
def closed(client: Client) -> Iterator[Client]:
    with contextlib.closing(client):
        yield client


def delivered(receiver: ScriptedReceiver, *documents: Document, seconds: float = 60.0) -> None:
    with closed(receiver.client(timeout_seconds=seconds)) as client:
        for item in documents or (document(),):
            client.deliver(item)


@pytest.mark.parametrize("code", ["AA", "CA"])
def test_a_positive_acknowledgement_is_success_and_the_bytes_are_the_stored_ones(code: str) -> None:
    with ScriptedReceiver(acknowledging(code)) as receiver:
        delivered(receiver)
        assert receiver.received == [document().content]


def test_a_connection_is_kept_for_the_next_message() -> None:
    with ScriptedReceiver(acknowledging("AA")) as receiver:
        delivered(receiver, document(1), document(2), document(3))
        assert (len(receiver.received), receiver.connections) == (3, 1)


def test_an_acknowledgement_may_come_in_pieces_of_one_byte() -> None:
    answer = writing(lambda own: [bytes([byte]) for byte in framed(message("AA", own))])
    with ScriptedReceiver(answer) as receiver:
        delivered(receiver, document(1), document(2))
        assert receiver.connections == 1


def test_of_two_acknowledgements_in_one_read_the_one_of_this_message_counts() -> None:
    answer = writing(lambda own: [framed(message("AE", "OTHER")) + framed(message("AA", own))])
    with ScriptedReceiver(answer) as receiver:
        delivered(receiver, document(1), document(2))
        assert (len(receiver.received), receiver.connections) == (2, 1)


def test_after_a_commit_an_application_acknowledgement_is_not_the_next_message_s() -> None:
    with (
        ScriptedReceiver(acknowledging("CA", "AA"), acknowledging("CE")) as receiver,
        closed(receiver.client()) as client,
    ):
        client.deliver(document(1))
        with pytest.raises(Refused):
            client.deliver(document(2))


def test_an_error_after_the_acknowledgement_is_logged() -> None:
    with ScriptedReceiver(acknowledging("CA", "AE")) as receiver, capture_logs() as logs:
        delivered(receiver, document(1), document(2))
    (warning,) = [item for item in logs if item["event"] == "hl7_error_after_acknowledgement"]
    assert (warning["control_id"], warning["code"]) == ("ID1", "AE")


@pytest.mark.parametrize("ends", [b"\x1c", b"\x1c\r", b"\x1c\r\n\r\n"])
def test_the_carriage_return_after_a_frame_may_be_missing_or_doubled(ends: bytes) -> None:
    answer = writing(lambda own: [b"\x0b" + message("AA", own) + ends])
    with ScriptedReceiver(answer) as receiver:
        delivered(receiver, document(1), document(2))
        assert receiver.connections == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda ack: ack.replace(b"\r", b"\n"),
        lambda ack: ack.replace(b"|", b"#"),
        lambda ack: ack.replace(b"\r", b"\r\n"),
    ],
    ids=["line feeds", "another separator", "both line ends"],
)
def test_acknowledgements_that_bend_the_encoding_rules_are_read(change: object) -> None:
    assert callable(change)
    with ScriptedReceiver(writing(lambda own: [framed(change(message("AA", own)))])) as receiver:
        delivered(receiver)


@pytest.mark.parametrize("code", ["AE", "CE"])
def test_an_error_is_a_refusal_that_says_what_to_do_and_names_no_patient(code: str) -> None:
    answer = acknowledging(code, error="101", text="missing for Doe^Jane")
    with ScriptedReceiver(answer) as receiver, pytest.raises(Refused) as caught:
        delivered(receiver)
    assert f"answers {code} (101 required field missing)" in caught.value.detail
    assert "requeue" in caught.value.detail
    assert "Doe" not in str(caught.value)


def test_a_code_of_an_error_that_the_standard_does_not_have_is_left_out() -> None:
    with (
        ScriptedReceiver(acknowledging("AE", error="Doe")) as receiver,
        pytest.raises(Refused) as caught,
    ):
        delivered(receiver)
    assert "Doe" not in str(caught.value)


@pytest.mark.parametrize("code", ["AR", "CR"])
def test_a_rejection_is_a_busy_receiver(code: str) -> None:
    with (
        ScriptedReceiver(acknowledging(code, error="207")) as receiver,
        pytest.raises(ReceiverBusy, match="cannot take the message now"),
    ):
        delivered(receiver)


def test_a_rejection_of_the_kind_of_message_is_a_refusal() -> None:
    with (
        ScriptedReceiver(acknowledging("AR", error="202")) as receiver,
        pytest.raises(Refused, match="processing_id"),
    ):
        delivered(receiver)


def test_a_code_that_the_standard_does_not_have_leaves_the_outcome_unknown() -> None:
    with (
        ScriptedReceiver(acknowledging("XX")) as receiver,
        pytest.raises(UnknownOutcome, match="table 0008"),
    ):
        delivered(receiver)


NO_ANSWERS: dict[str, tuple[Answer, str]] = {
    "silence": (silent, "no answer within"),
    "of another message": (acknowledging("AA", control_id="OTHER"), "MSA-2"),
    "without MSA-2": (writing(lambda _: [framed(message("AA", ""))]), "MSA-2"),
    "no acknowledgement at all": (writing(lambda _: [framed(b"hello")]), "MSA-2"),
    "an empty frame": (writing(lambda _: [framed(b"")]), "MSA-2"),
    "without a frame": (writing(lambda own: [message("AA", own)]), "in no MLLP frame"),
    "half an acknowledgement": (
        writing(lambda own: [framed(message("AA", own))[:40]]),
        "half an acknowledgement",
    ),
    "half of one, and the end": (
        writing(lambda own: [framed(message("AA", own))[:40]], closes=True),
        "half an acknowledgement",
    ),
    "a web server": (
        writing(lambda _: [b"HTTP/1.1 400 Bad Request\r\n\r\n<html>Doe</html>"], closes=True),
        "in no MLLP frame",
    ),
    "the end": (closing, "closed the connection"),
    "a message without an end": (
        writing(lambda _: [b"\x0b" + bytes(1100000)]),
        "a message without an end",
    ),
}


@pytest.mark.parametrize("how", NO_ANSWERS)
def test_without_an_acknowledgement_the_outcome_is_unknown(how: str) -> None:
    answer, said = NO_ANSWERS[how]
    with ScriptedReceiver(answer) as receiver, pytest.raises(UnknownOutcome) as caught:
        delivered(receiver, seconds=SHORT)
    assert said in caught.value.detail
    assert "same MSH-10" in caught.value.detail
    assert "Doe" not in caught.value.detail
    assert not caught.value.is_outage


def test_after_silence_the_same_message_goes_again_over_a_new_connection() -> None:
    with ScriptedReceiver(silent, acknowledging("AA")) as receiver:
        with (
            closed(receiver.client(timeout_seconds=SHORT)) as client,
            pytest.raises(UnknownOutcome),
        ):
            client.deliver(document())
        delivered(receiver)
        assert receiver.received == [document().content] * 2
        assert receiver.connections == 2


def test_a_receiver_that_closes_after_each_message_is_no_outage() -> None:
    answer = writing(lambda own: [framed(message("AA", own))], closes=True)
    with ScriptedReceiver(answer) as receiver:
        delivered(receiver, document(1), document(2), document(3))
        assert (len(receiver.received), receiver.connections) == (3, 3)


def test_a_kept_connection_that_ends_under_a_message_is_replaced_at_once() -> None:
    with ScriptedReceiver(acknowledging("AA"), closing, acknowledging("AA")) as receiver:
        delivered(receiver, document(1), document(2))
        contents = [item.content for item in (document(1), document(2), document(2))]
        assert (receiver.received, receiver.connections) == (contents, 2)


def test_bytes_that_nobody_asked_for_do_no_harm() -> None:
    unasked = writing(lambda own: [framed(message("AA", own)), bytes(3 << 20)], closes=True)
    with ScriptedReceiver(unasked, acknowledging("AA")) as receiver:
        delivered(receiver, document(1), document(2))
        assert len(receiver.received) == 2


def test_an_unused_connection_is_replaced() -> None:
    with ScriptedReceiver(acknowledging("AA")) as receiver:
        with closed(receiver.client(idle_seconds=0)) as client:
            client.deliver(document(1))
            client.deliver(document(2))
        assert receiver.connections == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_receiver_that_is_away_is_an_outage(host: str) -> None:
    destination = Hl7Destination(host=host, port=free_port(), timeout_seconds=5.0)
    with (
        closed(Hl7Client("ris", destination)) as client,
        pytest.raises(Retry, match="no connection") as caught,
    ):
        client.deliver(document())
    assert caught.value.is_outage
    assert not isinstance(caught.value, UnknownOutcome)


@pytest.mark.parametrize(
    ("written", "taken"), [("UNICODE UTF-8", "8859/1"), ("8859/1", "UNICODE UTF-8")]
)
def test_letters_in_a_character_set_that_the_receiver_does_not_take_are_refused(
    written: str, taken: str
) -> None:
    with ScriptedReceiver(acknowledging("AA")) as receiver:
        with closed(receiver.client(character_set=taken)) as client:
            with pytest.raises(Refused, match="set character_set") as caught:
                client.deliver(document(character_set=written, name=NAME))
            client.deliver(document(2, character_set=written))  # ASCII is the same in both
            client.deliver(document(3, character_set=taken, name=NAME))
        assert caught.value.reason == "character_set"
        assert "Weiß" not in caught.value.detail
        assert len(receiver.received) == 2


def test_a_document_of_another_kind_is_refused() -> None:
    with ScriptedReceiver(acknowledging("AA")) as receiver:
        with pytest.raises(Refused, match="no HL7 message"):
            delivered(receiver, replace(document(), kind="json"))
        assert receiver.received == []


def test_a_probe_sends_nothing() -> None:
    with ScriptedReceiver(acknowledging("AA")) as receiver:
        with closed(receiver.client()) as client:
            assert client.probe(5.0).is_ok
        assert receiver.bytes_received == 0


def test_a_probe_finds_a_receiver_that_closes_every_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        destination = Hl7Destination(host="127.0.0.1", port=listener.getsockname()[1])
        listener.settimeout(30)
        client = Hl7Client("ris", destination)

        def close_one() -> None:
            listener.accept()[0].close()

        closer = threading.Thread(target=close_one)
        closer.start()
        found = client.probe()
        closer.join()
    assert not found.is_ok
    assert "does it know our address" in found.detail


@pytest.mark.parametrize("answer", [silent, closing], ids=["silent", "closing"])
def test_if_message_after_message_gets_no_answer_it_is_an_outage(answer: Answer) -> None:
    """No message of a night may become a dead letter because a load balancer has no backend."""
    with ScriptedReceiver(answer) as receiver:
        breaker = CircuitBreaker("ris", receiver.client(timeout_seconds=0.05), Pipeline())
        with closed(breaker):
            found = [outcome(breaker, replace(document(), id=number)) for number in range(9)]
    assert [item.is_outage for item in found] == [False] * 7 + [True] * 2
    assert all(isinstance(item, UnknownOutcome) for item in found[:7])
    assert len(receiver.received) == 8


def outcome(client: DestinationClient, item: Document) -> Retry:
    with pytest.raises(Retry) as caught:
        client.deliver(item)
    return caught.value
