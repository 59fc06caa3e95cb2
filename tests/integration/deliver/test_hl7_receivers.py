"""HL7 messages to receivers that are not ours: python-hl7's server and hl7apy's."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pydicom.dataset import Dataset

from hilum.deliver import UnknownOutcome, probe_destination
from hilum.deliver.hl7 import Hl7Client
from hilum.domain import DeliveryState, Document
from hilum.errors import Retry
from hilum.report import build_documents
from hilum.settings import Hl7Destination, Settings
from testing.hl7_receiver import Hl7Receiver
from testing.phantoms.phantom import make_study
from tests.support.hl7.hl7apy_receiver import hl7apy_receiver
from tests.support.hl7.parsed import control_id_of, read
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.peers.certificates import Authority, Identity
from tests.support.reports.results import CONTEXT, make_release, report_of

RELEASE = make_release()


def image(number: int = 1, name: str = "Weiß^Jürgen") -> Dataset:
    (found,) = make_study(number, views=("PA",), rows=16, columns=16)
    found.SpecificCharacterSet = "ISO_IR 192"
    found.PatientName = name
    return found


def message(number: int = 1) -> Document:
    (found,) = build_documents(report_of([image(number)], RELEASE), RELEASE, CONTEXT, ("hl7",))
    return found


def destination(port: int, **settings: Any) -> Hl7Destination:
    return Hl7Destination(host="127.0.0.1", port=port, **settings)


def test_a_receiver_that_closes_after_each_message_has_them_all() -> None:
    documents = [message(number) for number in range(3)]
    with hl7apy_receiver() as (port, kept):
        with closing(Hl7Client("ris", destination(port))) as client:
            for item in documents:
                client.deliver(item)
        assert list(kept) == [control_id_of(item) for item in documents]
        assert list(kept.values()) == [item.content.decode() for item in documents]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def ours(authority: Authority) -> Identity:
    return authority.identity("hilum")


@pytest.fixture(scope="module")
def secured(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hl7Receiver]:
    """One that wants a client certificate."""
    own = authority.identity("ris", "IP:127.0.0.1")
    folder = tmp_path_factory.mktemp("secured") / "ris"
    identity = own.certificate, own.key
    with Hl7Receiver(folder, identity=identity, ca_file=authority.file) as receiver:
        yield receiver


def test_by_tls_with_a_client_certificate(
    secured: Hl7Receiver, authority: Authority, ours: Identity
) -> None:
    wanted = destination(
        secured.port,
        tls=True,
        ca_file=authority.file,
        certificate_file=ours.certificate,
        key_file=ours.key,
    )
    with closing(Hl7Client("ris", wanted)) as client:
        client.deliver(message(1))
        client.deliver(message(2))
    assert secured.held() == sorted(control_id_of(message(number)) for number in (1, 2))
    assert probe_destination("ris", wanted).is_ok


def test_a_receiver_that_wants_our_certificate_and_closes_is_named_by_probe_and_delivery(
    secured: Hl7Receiver, authority: Authority
) -> None:
    wanted = destination(secured.port, tls=True, ca_file=authority.file)
    with closing(Hl7Client("ris", wanted)) as client, pytest.raises(UnknownOutcome) as caught:
        client.deliver(message(3))
    found = probe_destination("ris", wanted)
    assert not found.is_ok
    for detail in (caught.value.detail, found.detail):
        assert "give certificate_file and key_file" in detail


def test_an_alert_about_our_certificate_is_an_outage(authority: Authority) -> None:
    own = authority.identity("alerting", "IP:127.0.0.1")
    with alerting(own, authority) as port:
        wanted = destination(port, tls=True, ca_file=authority.file)
        with closing(Hl7Client("ris", wanted)) as client, pytest.raises(Retry) as caught:
            client.deliver(message(3))
    assert "give certificate_file and key_file" in caught.value.detail
    assert caught.value.is_outage


@contextmanager
def alerting(identity: Identity, authority: Authority) -> Iterator[int]:
    """OpenSSL as a server that wants a client certificate, and says so by an alert."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.load_cert_chain(identity.certificate, identity.key)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_an_unknown_authority_and_a_client_without_tls_are_named(
    secured: Hl7Receiver, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    for wanted, said in (
        (destination(secured.port, tls=True, ca_file=other.file), "correct ca_file"),
        (destination(secured.port, timeout_seconds=10.0), "does it want TLS"),
    ):
        with closing(Hl7Client("ris", wanted)) as client, pytest.raises(Retry, match=said):
            client.deliver(message(3))


def test_an_expired_certificate_is_an_outage(authority: Authority, tmp_path: Path) -> None:
    old = authority.identity("old", "IP:127.0.0.1", days=-1)
    with Hl7Receiver(tmp_path / "ris", identity=(old.certificate, old.key)) as receiver:
        wanted = destination(receiver.port, tls=True, ca_file=authority.file)
        with closing(Hl7Client("ris", wanted)) as client, pytest.raises(Retry) as caught:
            client.deliver(message())
        assert "renewed" in caught.value.detail
        assert caught.value.is_outage
        assert receiver.held() == []


@pytest.mark.parametrize(
    ("name", "character_set", "encoding", "state"),
    [
        ("Weiß^Jürgen", "8859/1", "iso-8859-1", DeliveryState.DELIVERED),
        ("Wałęsa^Lech", "8859/1", "iso-8859-1", DeliveryState.DEAD),
    ],
)
def test_a_result_goes_from_the_ledger_to_the_receiver_in_its_character_set(
    tmp_path: Path, name: str, character_set: str, encoding: str, state: DeliveryState
) -> None:
    with Hl7Receiver(tmp_path / "ris", encoding=encoding) as receiver:
        section = {**receiver.settings, "character_set": character_set}
        with closing(Dispatcher(installation(tmp_path, section), RELEASE)) as dispatcher:
            dispatcher.read(image(name=name))
            dispatcher.assemble()
            stored = {new.document.kind: new for new in dispatcher.report()}
            assert stored["hl7"].destinations == ("ris",)
            assert "sr" in stored  # whatever becomes of the message
            (advance,) = dispatcher.deliver("ris")
            assert advance.state is state
        content = stored["hl7"].document.content
        if state is DeliveryState.DEAD:
            assert advance.values["reason"] == "character_set"
            assert receiver.held() == []
            return
        (control_id,) = receiver.held()
        assert receiver.message(control_id) == content
        assert str(read(content, encoding).segment("PID")[5]) == name


def test_two_destinations_that_differ_in_the_message_are_refused() -> None:
    first = {"kind": "hl7", "host": "ris", "receiving_application": "RIS"}
    second = {**first, "host": "his", "timeout_seconds": 5.0}
    Settings(destinations={"ris": first, "his": second})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="ris and his must not differ in receiving_application"):
        Settings(
            destinations={"ris": first, "his": {**second, "receiving_application": "HIS"}}  # type: ignore[dict-item]
        )


@pytest.mark.parametrize("kind", ["sr", "json", "heatmap"])
def test_it_takes_messages_alone(kind: str) -> None:
    with pytest.raises(ValueError, match="no HL7 message; it takes hl7"):
        destination(2575, documents=(kind,))


def installation(folder: Path, section: dict[str, Any]) -> Settings:
    (folder / "archive" / "locks").mkdir(parents=True)
    return Settings(
        site={"state_dir": folder},  # type: ignore[arg-type]
        ledger={"url": migrated_sqlite(folder)},  # type: ignore[arg-type]
        destinations={"ris": section},  # type: ignore[dict-item]
    )
