"""TLS on the listener: DCMTK and pynetdicom as senders, certificates that are wrong, missing, renewed; peers that stall."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.sop_class import Verification

from testing.phantoms.phantom import make_instance, save
from tests.support.machine.waiting import wait_for
from tests.support.peers.certificates import Authority, Identity
from tests.support.peers.peers import require_program
from tests.support.peers.raw_scu import RawScu, rejection_of
from tests.support.server.listening import ListenerProcess, data_set_of, make_settings


@dataclass(frozen=True)
class Site:
    """A listener with mutual TLS, its authority, and a sender that has what it needs."""

    listener: ListenerProcess
    authority: Authority
    sender: Identity
    own: Identity


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "certificates")
    own, sender = authority.identity("hilum", "IP:127.0.0.1"), authority.identity("modality")
    tls = {
        "tls_port": 2762,
        "tls_certificate_file": own.certificate,
        "tls_key_file": own.key,
        "tls_client_ca_file": authority.file,
        "tls_crl_file": authority.revocations(),
        "acse_timeout_seconds": 3,
    }
    bound = {
        "BOUND": {"certificate_names": ["modality"]},
        "FINGERED": {"certificate_names": [fingerprint(sender)]},
    }
    with ListenerProcess(make_settings(folder / "state", bound, **tls)) as running:
        yield Site(running, authority, sender, own)


def fingerprint(identity: Identity) -> str:
    """As openssl says it, with colons."""
    der = ssl.PEM_cert_to_DER_cert(identity.certificate.read_text())
    return f"sha256:{hashlib.sha256(der).digest().hex(':').upper()}"


def storescu(
    site: Site, identity: Identity | None, calling: str, *files: Path
) -> subprocess.CompletedProcess[str]:
    shown = ["+tla"] if identity is None else ["+tls", str(identity.key), str(identity.certificate)]
    command = [
        require_program("storescu", "dcmtk"),
        "-v",
        *shown,
        "+cf",
        str(site.authority.file),
        "-aet",
        calling,
        "-aec",
        "HILUM",
    ]
    target = ["127.0.0.1", str(site.listener.tls_port), *map(str, files)]
    return subprocess.run(
        [*command, *target],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TCP_NODELAY": "1"},
    )


def plain_echo(port: int) -> int:
    """A C-ECHO without TLS; DCMTK's exit code."""
    command = [require_program("echoscu", "dcmtk"), "-aec", "HILUM", "127.0.0.1", str(port)]
    return subprocess.run(command, check=False, timeout=30).returncode


def advice_of_the_newest_failure(site: Site, since: int) -> str:
    wait_for(lambda: failures(site) > since, what="the failed handshake in its row")
    (row,) = site.listener.rows(
        "SELECT advice FROM association WHERE outcome = 'tls_failed' ORDER BY ended_at DESC LIMIT 1"
    )
    return str(row["advice"])


def failures(site: Site) -> int:
    return counted(site, "outcome = 'tls_failed'")


def counted(site: Site, condition: str) -> int:
    """Associations of which rows tell."""
    ((count,),) = site.listener.rows(
        f"SELECT coalesce(sum(count), 0) FROM association WHERE {condition}"
    )
    return int(count)


def test_dcmtk_stores_over_mutual_tls_bit_for_bit(site: Site, tmp_path: Path) -> None:
    drawn = [make_instance(number, rows=600, columns=500) for number in (301, 302, 303)]
    files = [save(dataset, tmp_path / f"{number}.dcm") for number, dataset in enumerate(drawn)]
    answer = storescu(site, site.sender, "TLSDR", *files)
    assert answer.stderr.count("Received Store Response (Success)") == 3, answer.stderr
    stored = wait_for(
        lambda: len(site.listener.data_sets()) == 3 and site.listener.data_sets(), what="the rows"
    )
    assert sorted(stored.values()) == sorted(data_set_of(file) for file in files)
    row = wait_for(
        lambda: site.listener.rows("SELECT * FROM association WHERE calling_ae_title = 'TLSDR'"),
        what="the row",
    )[0]
    assert (row["outcome"], row["stored"]) == ("released", 3)


def test_pynetdicom_echoes_and_aborts(site: Site) -> None:
    context = ssl.create_default_context(cafile=site.authority.file)
    context.load_cert_chain(site.sender.certificate, site.sender.key)
    ae = AE("PYNETDICOM")
    ae.add_requested_context(Verification)
    for _ in range(5):
        association = ae.associate(
            "127.0.0.1", site.listener.tls_port, ae_title="HILUM", tls_args=(context, "127.0.0.1")
        )
        assert association.is_established
        assert [association.send_c_echo().Status for _ in range(3)] == [0, 0, 0]
        association.abort()
    ended = "calling_ae_title = 'PYNETDICOM' AND reason = 'aborted_by_peer'"
    wait_for(lambda: counted(site, ended) == 5, what="all of them in rows")


def test_the_port_without_tls_serves_beside_it(site: Site) -> None:
    assert plain_echo(site.listener.port) == 0


def test_a_stranger_is_refused_with_advice(site: Site, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "others").identity("stranger")
    file = save(make_instance(9, rows=32, columns=32), tmp_path / "9.dcm")
    for identity, said in (
        (stranger, "have it signed by the authority"),
        (None, "It showed no certificate"),
    ):
        before = failures(site)
        assert "Received Store Response" not in storescu(site, identity, "STRANGER", file).stderr
        assert said in advice_of_the_newest_failure(site, before)
    assert site.listener.rows("SELECT 1 FROM association WHERE calling_ae_title = 'STRANGER'") == []


def test_plain_dicom_on_the_tls_port_is_told_so(site: Site) -> None:
    before = failures(site)
    assert plain_echo(site.listener.tls_port) != 0
    assert "is no TLS" in advice_of_the_newest_failure(site, before)


@pytest.mark.parametrize("title", ["BOUND", "FINGERED"])
def test_a_certificate_of_one_sender_does_not_pass_for_another(
    site: Site, tmp_path: Path, title: str
) -> None:
    file = save(make_instance(310, rows=64, columns=64), tmp_path / "1.dcm")
    assert storescu(site, site.sender, title, file).returncode == 0
    assert storescu(site, site.authority.identity("other"), title, file).returncode != 0
    assert f"Its certificate holds none of senders.{title}.certificate_names" in newest_advice(
        site, title, 1
    )
    assert rejection_of(RawScu(site.listener.port, calling=title).assoc), "nor without TLS"
    assert "It showed no certificate" in newest_advice(site, title, 2)
    assert storescu(site, site.authority.identity("other"), "UNBOUND", file).returncode == 0, (
        "others are as before"
    )


def newest_advice(site: Site, title: str, count: int) -> str:
    """Of so many rejections, for whichever minute they are counted in."""
    rejected = (
        f"calling_ae_title = '{title}' AND outcome = 'rejected' AND reason ="
        " 'certificate_not_of_ae_title'"
    )
    wait_for(lambda: counted(site, rejected) == count, what="the rejection in a row")
    (row,) = site.listener.rows(
        f"SELECT advice FROM association WHERE {rejected} ORDER BY ended_at DESC LIMIT 1"
    )
    return str(row["advice"])


def test_a_revoked_certificate_is_refused_without_restart_and_others_are_not(
    site: Site, tmp_path: Path
) -> None:
    file, leaver = (
        save(make_instance(311, rows=64, columns=64), tmp_path / "1.dcm"),
        site.authority.identity("leaver"),
    )
    assert storescu(site, leaver, "LEAVER", file).returncode == 0
    before = failures(site)
    site.authority.revocations(leaver)
    assert storescu(site, leaver, "LEAVER", file).returncode != 0
    assert "its authority has revoked it" in advice_of_the_newest_failure(site, before)
    assert storescu(site, site.sender, "STAYS", file).returncode == 0


def test_a_list_of_revoked_certificates_that_has_expired_lets_nobody_in(
    site: Site, tmp_path: Path
) -> None:
    file, before = save(make_instance(312, rows=64, columns=64), tmp_path / "1.dcm"), failures(site)
    site.authority.revocations(has_expired=True)
    assert storescu(site, site.sender, "LATE", file).returncode != 0
    assert "receive.tls_crl_file has expired" in advice_of_the_newest_failure(site, before)
    site.authority.revocations()
    assert storescu(site, site.sender, "LATE", file).returncode == 0


def test_old_tls_is_refused(site: Site) -> None:
    before = failures(site)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(site.authority.file)
    context.minimum_version, context.maximum_version = (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_2,
    )
    context.set_ciphers("AES128-SHA:@SECLEVEL=0")  # without forward secrecy
    with (
        socket.create_connection(("127.0.0.1", site.listener.tls_port)) as plain,
        pytest.raises(OSError, match=r"(?i)handshake|alert"),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    assert "TLS 1.2 or newer, with forward secrecy" in advice_of_the_newest_failure(site, before)


def test_stalled_handshakes_hold_nobody_up_and_end(site: Site, tmp_path: Path) -> None:
    before = failures(site)
    stalled = [socket.create_connection(("127.0.0.1", site.listener.tls_port)) for _ in range(40)]
    file = save(make_instance(77, rows=32, columns=32), tmp_path / "77.dcm")
    assert "Received Store Response (Success)" in storescu(site, site.sender, "BESIDE", file).stderr
    for connection in stalled:
        connection.settimeout(20)
        assert connection.recv(1) == b"", "we end it after the time-out"
        connection.close()
    wait_for(lambda: failures(site) - before == 40, what="their rows")


def test_a_look_by_a_load_balancer_leaves_no_row(site: Site) -> None:
    before = failures(site)
    for _ in range(3):
        socket.create_connection(("127.0.0.1", site.listener.tls_port)).close()
    assert plain_echo(site.listener.tls_port) != 0
    advice_of_the_newest_failure(site, before)
    assert failures(site) == before + 1, "only the one that said something"


def test_a_renewed_certificate_is_used_without_restart(site: Site, tmp_path: Path) -> None:
    renewed = site.authority.identity("renewed", "IP:127.0.0.1")
    kept = [
        Path(shutil.copy(file, tmp_path / file.name))
        for file in (site.own.certificate, site.own.key)
    ]
    assert common_name(site) == "hilum"
    replace(renewed, site.own)
    assert common_name(site) == "renewed"
    site.own.certificate.write_text("no certificate")
    assert common_name(site) == "renewed", "the last good one stays"
    shutil.copy(site.authority.encrypted(site.own), site.own.key)
    assert common_name(site) == "renewed", "nobody is asked for a password"
    replace(Identity(*kept), site.own)
    assert common_name(site) == "hilum"
    assert "certificates_not_usable" in site.listener.log.read_text()


def replace(new: Identity, old: Identity) -> None:
    """The key first: for a moment they do not belong together, and the former ones stay."""
    shutil.copy(new.key, old.key)
    shutil.copy(new.certificate, old.certificate)


def common_name(site: Site) -> str:
    """Of the certificate that the listener shows."""
    context = ssl.create_default_context(cafile=site.authority.file)
    context.load_cert_chain(site.sender.certificate, site.sender.key)
    with (
        socket.create_connection(("127.0.0.1", site.listener.tls_port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        certificate = secured.getpeercert() or {}
        return str(dict(part[0] for part in certificate["subject"])["commonName"])  # type: ignore[arg-type, misc]


def test_the_process_ends_soon_with_tls_associations_open(site: Site) -> None:
    """Last in this file: it ends the listener."""
    context = ssl.create_default_context(cafile=site.authority.file)
    context.load_cert_chain(site.sender.certificate, site.sender.key)
    ae = AE("IDLE")
    ae.add_requested_context(Verification)
    open_ones = [
        ae.associate(
            "127.0.0.1", site.listener.tls_port, ae_title="HILUM", tls_args=(context, "127.0.0.1")
        )
        for _ in range(4)
    ]
    assert all(association.is_established for association in open_ones)
    assert site.listener.stop() == 0
    wait_for(
        lambda: all(association.is_aborted for association in open_ones),
        what="A-ABORT: they are not cut off when their time is over",
    )
