"""`hilum check` on the ways in: ports, certificates, watched folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hilum.dicom.tls_client import Tls
from hilum.domain import Scope
from hilum.errors import Retry
from hilum.settings import Settings, load
from hilum.store.archive.archive import Archive
from hilum.store.audit.access_tokens import AccessTokens
from hilum.supervisor.checks.access import secrets
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.doctor import examine
from testing.serving import free_ports
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.accounts import STRANGER, open_to_all
from tests.support.machine.disks import small_disk
from tests.support.peers.certificates import Authority


def found(tmp_path: Path, **sections: object) -> dict[str, Check]:
    (port,) = free_ports(1)
    api = {"port": port, **sections.pop("api", {})}  # type: ignore[dict-item]
    settings = Settings(**{"site": {"state_dir": tmp_path / "state"}, "api": api, **sections})  # type: ignore[arg-type]
    return {check.name: check for check in examine(settings)}


def test_the_port_with_tls_is_looked_at_and_the_one_that_is_closed_is_not(tmp_path: Path) -> None:
    own, (port,) = (
        Authority(tmp_path / "certificates").identity("hilum", "IP:127.0.0.1"),
        free_ports(1),
    )
    tls = {
        "allow_unencrypted": False,
        "tls_port": port,
        "tls_certificate_file": own.certificate,
        "tls_key_file": own.key,
    }
    checks = found(tmp_path, receive=tls)
    assert "receive port" not in checks
    assert "receive CA" not in checks
    assert checks["receive tls port"].ok
    said = (
        "certificate and key belong together; senders need no certificate"
        " (receive.tls_client_ca_file); our certificate holds until "
    )
    assert checks["receive TLS"].ok
    assert checks["receive TLS"].detail.startswith(said)
    assert checks["receive TLS"].detail.endswith(", in 2 days: RENEW receive.tls_certificate_file")
    other = Authority(tmp_path / "others").identity("other")
    wrong = found(tmp_path, receive={**tls, "tls_key_file": other.key})["receive TLS"]
    assert not wrong.ok
    assert "give PEM files that belong together" in wrong.detail
    old = Authority(tmp_path / "old").identity("hilum", days=-1)
    expired = found(
        tmp_path, receive={**tls, "tls_certificate_file": old.certificate, "tls_key_file": old.key}
    )["receive TLS"]
    assert (expired.ok, expired.advice) == (
        False,
        "Others refuse it: renew receive.tls_certificate_file.",
    )
    with_authority = found(tmp_path, receive={**tls, "tls_client_ca_file": old.certificate})[
        "receive CA"
    ]
    assert (with_authority.ok, with_authority.advice) == (
        False,
        (
            "Nobody whose certificate it has signed is believed: put the authority's new one into"
            " receive.tls_client_ca_file."
        ),
    )


def test_tokens_that_cross_the_network_in_clear_are_a_problem(tmp_path: Path) -> None:
    open_to_all = found(tmp_path, api={"host": "0.0.0.0"})["api TLS"]
    assert (open_to_all.ok, "tokens cross the network in clear" in open_to_all.detail) == (
        False,
        True,
    )
    assert found(tmp_path, api={"host": "0.0.0.0", "proxies": ["10.0.0.1"]})["api TLS"].ok
    assert found(tmp_path)["api TLS"].ok


def test_the_certificate_of_https_is_looked_at(tmp_path: Path) -> None:
    own = Authority(tmp_path / "certificates").identity("hilum", "IP:127.0.0.1")
    given = {"host": "0.0.0.0", "tls_certificate_file": own.certificate, "tls_key_file": own.key}
    checks = found(tmp_path, api=given)
    assert checks["api TLS"].detail.startswith("our certificate holds until ")
    other = Authority(tmp_path / "others").identity("other")
    wrong = found(tmp_path, api={**given, "tls_key_file": other.key})["api TLS"]
    assert (wrong.ok, "give PEM files that belong together" in wrong.detail) == (False, True)


@pytest.mark.parametrize(
    ("token", "ok", "said"),
    [("", True, "none"), ("short", False, "may be guessed"), ("x" * 32, True, "named tokens")],
)
def test_the_token_of_the_settings_is_judged(
    tmp_path: Path, token: str, ok: bool, said: str
) -> None:
    check = found(tmp_path, api={"token": token})["api.token"]
    assert (check.ok, said in check.detail) == (ok, True)


def test_a_token_of_the_host_that_others_may_read_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "state/run/api-token"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    file.chmod(0o640)
    check = found(tmp_path)["local token"]
    assert (check.ok, check.advice) == (False, f"Delete it and restart: rm {file}")
    file.chmod(0o600)
    assert "local token" not in found(tmp_path)


def test_named_tokens_that_end_soon_are_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    tokens = AccessTokens(migrated_sqlite(tmp_path / "state"))
    tokens.create("night", Scope.READ, 13)
    tokens.create("day", Scope.READ, None)
    assert (
        found(tmp_path)["tokens"].detail
        == "2 named tokens valid; of these end within two weeks: night"
    )


def test_an_acknowledged_image_that_waits_long_for_its_row_is_a_problem(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "state/archive", "gone-listener-0")
    archive.make()
    with archive.held(archive.process), archive.begin() as incoming:
        file = incoming.commit()
    assert found(tmp_path)["unindexed"].ok, "every image waits for a moment"
    os.utime(file, (long_ago := time.time() - 1500, long_ago))
    check = found(tmp_path)["unindexed"]
    assert (check.ok, check.detail) == (
        False,
        "1 acknowledged image without a row, the oldest for 25 min, from gone-listener-0",
    )


def test_a_full_disk_is_a_problem_that_names_the_setting_that_is_crossed(tmp_path: Path) -> None:
    (receive,) = free_ports(1)
    for sections, said in (
        (
            {"reject_bytes": 1 << 60},
            "Free space, or lower receive.reject_bytes (default: twice receive.reserve_bytes).",
        ),
        (
            {"reserve_bytes": 1 << 60},
            "C-STORE is refused with 0xA700: free space, or lower receive.reserve_bytes.",
        ),
    ):
        check = found(tmp_path, receive={"port": receive, **sections})["disk"]
        assert (check.ok, check.advice) == (False, said)


def test_an_encrypted_key_is_a_problem_and_no_question(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    own, (port,) = authority.identity("hilum", "IP:127.0.0.1"), free_ports(1)
    tls = {
        "allow_unencrypted": False,
        "tls_port": port,
        "tls_certificate_file": own.certificate,
        "tls_key_file": authority.encrypted(own),
    }
    wrong = found(tmp_path, receive=tls)["receive TLS"]
    assert not wrong.ok
    assert "hilum.encrypted.key: the key must not be encrypted" in wrong.detail


def test_the_same_of_a_destination_is_an_outage(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.identity("hilum")
    with pytest.raises(Retry, match="the key must not be encrypted"):
        Tls(authority.file, own.certificate, authority.encrypted(own), "pacs.test").context()


def test_a_watched_folder_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (receive,) = free_ports(1)
    watch = {name: {"path": tmp_path / name} for name in ("there", "gone")}
    checks = found(tmp_path, watch=watch, receive={"port": receive})
    assert checks["watch there"].ok
    assert not checks["watch gone"].ok
    assert (
        checks["watch gone"].advice
        == "Make it a folder that this user may read and write, or set watch.gone.path."
    )


def test_a_sender_is_shown_with_what_is_its_own_and_one_that_is_read_by_nobody_is_named(
    tmp_path: Path,
) -> None:
    (receive,) = free_ports(1)
    senders = {"ARCHIVE": {"priority": "reanalysis", "quiet_seconds": 0.0}, "CR1": {}}
    checks = found(tmp_path, senders=senders, receive={"port": receive})
    assert checks["sender ARCHIVE"].detail == "its own: quiet_seconds, priority"
    assert checks["sender CR1"].detail == "as all others"
    wrong = found(
        tmp_path, senders={"CR1": {"releases": ["densenet@9"]}}, receive={"port": receive}
    )["releases"]
    assert not wrong.ok
    assert "senders.CR1.releases: densenet@9 has no manifest" in wrong.detail


def test_a_list_of_revoked_certificates_that_has_expired_is_a_problem(tmp_path: Path) -> None:
    authority, (port,) = Authority(tmp_path / "certificates"), free_ports(1)
    own = authority.identity("hilum", "IP:127.0.0.1")
    tls = {
        "allow_unencrypted": False,
        "tls_port": port,
        "tls_certificate_file": own.certificate,
        "tls_key_file": own.key,
    }
    tls |= {"tls_client_ca_file": authority.file, "tls_crl_file": authority.revocations()}
    good = found(tmp_path, receive=tls)["receive CRL"]
    assert good.ok
    assert "the list of revoked certificates holds until" in good.detail
    authority.revocations(has_expired=True)
    expired = found(tmp_path, receive=tls)["receive CRL"]
    assert (expired.ok, expired.detail) == (
        False,
        "a list of revoked certificates expired on 2020-01-02",
    )
    none = found(tmp_path, receive={**tls, "tls_crl_file": own.certificate})["receive TLS"]
    assert (none.ok, "holds no certificate revocation list" in none.detail) == (False, True)


@pytest.mark.parametrize(
    ("receive", "is_open"),
    [
        ({}, True),
        ({"host": "127.0.0.1"}, False),
        ({"peers": ["10.0.0.0/8"]}, False),
        ({"calling_ae_titles": ["ROUTER"]}, False),
    ],
)
def test_that_anybody_may_send_is_said(
    tmp_path: Path, receive: dict[str, object], is_open: bool
) -> None:
    (port,) = free_ports(1)
    check = found(tmp_path, receive={"port": port, **receive})["senders"]
    assert check.ok
    assert check.detail.startswith("ANYBODY") is is_open


def test_a_disk_that_can_hold_few_files_more_is_a_problem(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with small_disk(tmp_path / "state", 8, inodes=260):
        few = found(tmp_path, receive={"port": port, "reserve_bytes": 0, "reserve_files": 200})[
            "disk"
        ]
        assert (few.ok, few.advice) == (
            False,
            "Delete files in this file system, or lower receive.reserve_files.",
        )
        assert found(tmp_path, receive={"port": port, "reserve_bytes": 0, "reserve_files": 50})[
            "disk"
        ].ok


def secrets_of(folder: Path, **sections: object) -> Check:
    settings = load(folder / "hilum.toml").model_copy(update=sections)
    (check,) = secrets(settings, folder / "hilum.toml")
    return check


@pytest.mark.parametrize(
    ("mode", "is_ok"), [(0o600, True), (0o640, False), (0o604, False), (0o644, False)]
)
@pytest.mark.parametrize(
    "text", ['[api]\ntoken = "t"', '[ledger]\nurl = "postgresql+psycopg://hilum:secret@db/hilum"']
)
def test_a_settings_file_with_a_secret_is_closed_to_other_accounts(
    text: str, mode: int, is_ok: bool
) -> None:
    with open_to_all() as site:
        file = site / "hilum.toml"
        file.write_text(text)
        file.chmod(mode)
        os.chown(file, STRANGER, STRANGER)
        check = secrets_of(site)
        assert check.ok is is_ok
        assert is_ok or str(file) in check.advice


def test_a_group_that_root_has_chosen_may_read_secrets_and_anybody_settings_without(
    tmp_path: Path,
) -> None:
    with open_to_all() as site:
        (site / "hilum.toml").write_text('[api]\ntoken = "t"')
        (site / "hilum.toml").chmod(0o640)
        assert secrets_of(site).ok, "as the steps for systemd make it: root:hilum"
        (site / "hilum.toml").write_text('[ledger]\nurl = "postgresql+psycopg://hilum@db/hilum"')
        (site / "hilum.toml").chmod(0o644)
        assert secrets_of(site).ok, "it holds none"


def test_a_key_that_others_may_read_is_a_problem() -> None:
    with open_to_all() as site:
        own = Authority(site / "certificates").identity("hilum", "IP:127.0.0.1")
        (site / "certificates").chmod(0o755)
        (site / "hilum.toml").write_text(
            f'[receive]\ntls_port = 2762\ntls_certificate_file = "{own.certificate}"\ntls_key_file'
            f' = "{own.key}"\n[destinations.pacs]\ntls = true\ncertificate_file ='
            f' "{own.certificate}"\nkey_file = "{own.key}"'
        )
        own.key.chmod(0o644)
        check = secrets_of(site)
        assert (check.ok, str(own.key) in check.detail) == (False, True)
        own.key.chmod(0o600)
        assert secrets_of(site).ok
