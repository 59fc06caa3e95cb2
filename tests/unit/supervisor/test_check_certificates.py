"""`hilum check` on certificates: one that expires soon, has expired, or does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hilum.api.certificates import authorities, own_certificates
from hilum.dicom.own_certificate import is_named
from hilum.settings import Api, LedgerSection, Settings, Site
from hilum.settings.archive import ArchiveSection
from hilum.supervisor.checks.api import api_tls
from hilum.supervisor.checks.archive import archive_checks
from hilum.supervisor.checks.peers import authority as check_authority
from hilum.supervisor.checks.peers import certificate
from tests.support.peers.certificates import Authority


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority of this file."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("days", "ok", "said"),
    [
        (-1, False, "our certificate expired on "),
        (29, True, ": RENEW receive.tls_certificate_file"),
        (32, True, "our certificate holds until "),
    ],
)
def test_a_certificate_is_renewed_within_its_last_month(
    signer: Authority, days: int, ok: bool, said: str
) -> None:
    own = signer.identity(f"days{days}", days=days)
    check = certificate("receive TLS", own.certificate, "receive.tls_certificate_file", own.key)
    assert check.ok is ok
    assert said in check.detail
    assert ("RENEW" in check.detail) is (days == 29)


def test_a_key_of_another_certificate_is_named(signer: Authority) -> None:
    own = signer.identity("own")
    other = signer.identity("other")
    setting = "destinations.pacs.certificate_file"
    check = certificate("pacs TLS", own.certificate, setting, other.key)
    assert not check.ok
    assert check.detail == "certificate and key are not usable together (key values mismatch)"
    assert setting in check.advice


def test_an_authority_within_its_last_month_is_named(signer: Authority) -> None:
    check = check_authority("ledger CA", signer.file, "sslrootcert")
    assert (check.ok, "RENEW sslrootcert" in check.detail) == (True, True)


def test_the_authority_of_an_object_store_is_looked_at_as_the_alert_says(
    signer: Authority, tmp_path: Path
) -> None:
    store = ArchiveSection(url=f"file://{tmp_path}/store", ca_file=signer.file)
    settings = Settings(site=Site(state_dir=tmp_path), archive=store)
    assert "archive" in authorities(settings), "the metric behind the alert has it"
    found = {check.name: check for check in archive_checks(settings)}
    assert "RENEW archive.ca_file" in found["archive CA"].detail


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("ai.hospital.test", True),
        ("AI.hospital.test", True),
        ("10.1.2.3", True),
        ("other.hospital.test", False),
        ("10.1.2.4", False),
    ],
)
def test_the_names_of_a_certificate_are_those_that_clients_accept(
    signer: Authority, name: str, holds: bool
) -> None:
    own = signer.identity("named", "DNS:ai.hospital.test", "IP:10.1.2.3")
    assert is_named(own.certificate, own.key, name) is holds


def test_a_name_counts_whether_the_certificate_has_expired_or_not(signer: Authority) -> None:
    own = signer.identity("late", "DNS:ai.hospital.test", days=-1)
    assert is_named(own.certificate, own.key, "ai.hospital.test")


def test_check_names_a_certificate_of_another_name(signer: Authority) -> None:
    own = signer.identity("web", "DNS:ai.hospital.test", days=60)
    api = Api(
        host="0.0.0.0",
        names=("ai.hospital.test", "reading.hospital.test"),
        tls_certificate_file=own.certificate,
        tls_key_file=own.key,
    )
    found = {check.name: check for check in api_tls(Settings(api=api))}
    assert {name: check.ok for name, check in found.items()} == {
        "api TLS": True,
        "api TLS name": False,
    }
    assert found["api TLS name"].detail == (
        "our certificate does not hold for reading.hospital.test"
    )


def test_every_certificate_of_the_settings_has_its_section(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("own", "key", "ca", "root")}
    client = {
        "tls": True,
        "certificate_file": files["own"],
        "key_file": files["key"],
        "ca_file": files["ca"],
    }
    url = f"postgresql+psycopg://hilum@db/hilum?sslmode=verify-full&sslrootcert={files['root']}"
    settings = Settings(
        ledger=LedgerSection(url=url),
        destinations={"pacs": {"port": 104, **client}, "plain": {"port": 104}},
        commitment={"CR1": {"host": "cr1", "port": 104, **client}},
    )
    assert dict(own_certificates(settings)) == {
        "destinations.pacs": files["own"],
        "commitment.CR1": files["own"],
    }
    assert dict(authorities(settings)) == {
        "ledger": files["root"],
        "destinations.pacs": files["ca"],
        "commitment.CR1": files["ca"],
    }
