"""Certificates whose time is over, and what each side gets to know.

Our own and those of others, on either side of TLS.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from hilum.api.status import Observer
from hilum.deliver.connection import ConnectionLost
from hilum.deliver.scu.connection import SocketReader
from hilum.dicom.own_certificate import expires_at
from hilum.dicom.tls_client import Tls, secure
from hilum.errors import Retry
from hilum.receive.association.tls import (
    HandshakeFailed,
    ServerTls,
    begin_tls,
    certificate_names,
    shake_hands,
)
from hilum.settings import Receive, Sender, Settings
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.peers.certificates import Authority, Identity
from tests.support.peers.peers import require_program


@pytest.fixture(scope="module")
def valid(authority: Authority) -> Identity:
    return authority.identity("valid", "DNS:pacs.test")


@pytest.fixture(scope="module")
def expired(authority: Authority) -> Identity:
    return authority.identity("expired", "DNS:pacs.test", days=-1)


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection: ours has options that only TCP knows."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname(), timeout=20)
        other, _ = listening.accept()
    return one, other


def beside(what: Callable[[], object]) -> threading.Thread:
    """The other side, whatever becomes of it."""

    def run() -> None:
        with contextlib.suppress(OSError, HandshakeFailed):
            what()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "days", [-1, 2, 10, 20_000], ids=["expired", "soon", "later", "after 2050"]
)
def test_the_end_of_a_certificate_is_as_openssl_says(authority: Authority, days: int) -> None:
    file = authority.identity(f"days{days}", days=days).certificate
    asked = [require_program("openssl", "openssl"), "x509", "-enddate", "-noout", "-in", str(file)]
    said = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout
    told = datetime.strptime(
        said.strip().removeprefix("notAfter="), "%b %d %H:%M:%S %Y %Z"
    ).replace(tzinfo=UTC)
    assert expires_at(file) == told.timestamp()


@pytest.mark.parametrize(
    "text", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_an_error_that_names_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.pem").write_text(text)
    with pytest.raises(OSError, match=r"holds no certificate in PEM.*own\.pem"):
        expires_at(tmp_path / "own.pem")


def test_a_sender_that_refuses_ours_is_not_told_to_trust_it(
    authority: Authority, expired: Identity, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = ServerTls(
        Receive(tls_port=2762, tls_certificate_file=expired.certificate, tls_key_file=expired.key)
    )
    ours.warn_if_expired()
    assert "certificate_expired" in "".join(capfd.readouterr())
    sender, plain = pair()
    thread = beside(
        lambda: ssl.create_default_context(cafile=authority.file).wrap_socket(
            sender, server_hostname="pacs.test"
        )
    )
    with pytest.raises(
        HandshakeFailed,
        match=r"our certificate has expired .*: renew receive\.tls_certificate_file",
    ):
        shake_hands(begin_tls(plain, ours.context()), 20)
    thread.join()


def test_a_sender_whose_own_has_expired_is_told_to_renew_it(
    authority: Authority, valid: Identity, expired: Identity
) -> None:
    files = {
        "tls_certificate_file": valid.certificate,
        "tls_key_file": valid.key,
        "tls_client_ca_file": authority.file,
    }
    ours = ServerTls(Receive(tls_port=2762, **files))
    theirs = ssl.create_default_context(cafile=authority.file)
    theirs.load_cert_chain(expired.certificate, expired.key)
    sender, plain = pair()
    thread = beside(lambda: theirs.wrap_socket(sender, server_hostname="pacs.test"))
    with pytest.raises(
        HandshakeFailed, match=r"\(certificate has expired\): renew it at the sender"
    ):
        shake_hands(begin_tls(plain, ours.context()), 20)
    thread.join()


def receiver(authority: Authority, shown: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    return context


def test_a_destination_whose_certificate_has_expired_is_to_renew_it(
    authority: Authority, valid: Identity, expired: Identity
) -> None:
    plain, other = pair()
    thread = beside(lambda: receiver(authority, expired).wrap_socket(other, server_side=True))
    with pytest.raises(Retry, match=r"\(certificate has expired\); it is to be renewed there"):
        secure(
            plain,
            Tls(authority.file, valid.certificate, valid.key, "pacs.test"),
            "PACS@pacs.test:2762",
        )
    thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_destination_that_refuses_ours_is_not_said_to_want_another(
    authority: Authority, valid: Identity, expired: Identity, version: ssl.TLSVersion
) -> None:
    theirs = receiver(authority, valid)
    theirs.maximum_version = version
    plain, other = pair()
    thread = beside(lambda: theirs.wrap_socket(other, server_side=True))
    with pytest.raises(
        (Retry, ConnectionLost)
    ) as raised:  # in TLS 1.3 it is said after our side has finished
        SocketReader(
            secure(
                plain, Tls(authority.file, expired.certificate, expired.key, "pacs.test"), "PACS"
            ),
            20,
        ).receive()
    assert re.search(
        r"certificate.expired.*renew certificate_file",
        f"{raised.value} {getattr(raised.value, 'detail', '')}",
    )
    thread.join()


def test_metrics_tell_when_ours_expire(tmp_path: Path, valid: Identity) -> None:
    shown = {"tls": True, "certificate_file": valid.certificate, "key_file": valid.key}
    settings = Settings(
        receive={
            "tls_port": 2762,
            "tls_certificate_file": valid.certificate,
            "tls_key_file": valid.key,
        },
        destinations={"pacs": {"port": 104, **shown}, "other": {"port": 104}},
        commitment={
            "CR1": {
                "host": "127.0.0.1",
                "port": 104,
                **shown,
                "certificate_file": tmp_path / "missing.pem",
            }
        },
    )
    views = LedgerViews(migrated_sqlite(tmp_path))
    found = [
        (labels, value)
        for name, labels, value in Observer(settings, views, lambda: 0.0).samples()
        if "certificate" in name
    ]
    assert found == [
        (("receive",), expires_at(valid.certificate)),
        (("destinations.pacs",), expires_at(valid.certificate)),
    ]
    views.close()


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("CR1.Hospital.example", "cr1.hospital.example"),
        ("urn:oid:1.2.3", "urn:oid:1.2.3"),
        ("https://Hospital.example/CR1", "https://Hospital.example/CR1"),
        (f"SHA256:{'AB:' * 31}CD", f"sha256:{'ab' * 31}cd"),
    ],
)
def test_names_of_certificates_compare_as_the_standard_says(said: str, name: str) -> None:
    assert Sender(certificate_names=(said,)).certificate_names == (name,)


@pytest.mark.parametrize("wrong", ["", " ", "sha256:", "sha256:abcd", f"sha256:{'g' * 64}"])
def test_what_can_name_no_certificate_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError):
        Sender(certificate_names=(wrong,))


def test_a_common_name_does_not_pass_for_a_fingerprint(
    authority: Authority, valid: Identity
) -> None:
    """Its authority may sign whatever name it is asked for."""
    forged = authority.identity(f"sha256:{'ab' * 25}", "DNS:cr1.test", "URI:urn:cr:1")
    shown = names_shown_by(forged, valid, authority)
    assert {name for name in shown if not name.startswith("sha256:")} == {"cr1.test", "urn:cr:1"}
    assert [len(name) for name in shown if name.startswith("sha256:")] == [len("sha256:") + 64]
    assert f"sha256:{'ab' * 25}" not in shown


def names_shown_by(client: Identity, server: Identity, authority: Authority) -> frozenset[str]:
    """What the receiver reads of a sender's certificate after a handshake."""
    receiving, sending = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=authority.file),
    )
    receiving.load_cert_chain(server.certificate, server.key)
    receiving.load_verify_locations(authority.file)
    receiving.verify_mode = ssl.CERT_REQUIRED
    sending.load_cert_chain(client.certificate, client.key)
    sending.check_hostname = False
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(sending.wrap_socket, theirs)
        with receiving.wrap_socket(ours, server_side=True) as secured, answer.result():
            return certificate_names(secured)


def test_without_tls_there_is_no_name() -> None:
    with socket.socket() as plain:
        assert certificate_names(plain) == certificate_names(None) == frozenset()
