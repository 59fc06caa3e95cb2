"""`hilum check` on Tritons: those that somebody else runs, and the embedded one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from hilum.settings import Settings
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.doctor import examine
from hilum.supervisor.checks.triton import FLAWS, triton_checks
from hilum.triton import landlock, leftovers
from testing.serving import free_ports
from tests.support.models.triton import require_triton
from tests.support.peers.certificates import Authority


def test_each_triton_of_the_settings_is_looked_at(tmp_path: Path) -> None:
    gone, receive, api = free_ports(3)
    with socket.create_server(("127.0.0.1", 0)) as there:
        urls = [f"127.0.0.1:{there.getsockname()[1]}", f"127.0.0.1:{gone}"]
        sections = {
            "site": {"state_dir": tmp_path},
            "receive": {"port": receive},
            "api": {"port": api},
            "triton": {"urls": urls},
        }
        found = [check for check in examine(Settings(**sections)) if check.name == "triton"]
    assert [(check.detail, check.ok) for check in found] == [(urls[0], True), (urls[1], False)]
    assert "start that Triton" in found[1].advice


def _checked(state: Path, **sections: Any) -> dict[str, Check]:
    return {
        check.name: check
        for check in triton_checks(Settings(site={"state_dir": state}, **sections))
    }


@pytest.mark.parametrize(
    ("triton", "is_fine", "words"),
    [
        ({"url": "127.0.0.1:1"}, False, "open to every account of this machine"),
        ({"url": "[::1]:1"}, False, "open to every account of this machine"),
        ({"url": "gpu.invalid:1"}, False, "images go there unencrypted"),
        ({"url": "gpu.invalid:1", "tls": True}, False, "without a certificate or token of ours"),
        ({"url": "gpu.invalid:1", "tls": True, "token": "secret"}, True, "we show a token"),
    ],
)
def test_a_triton_that_is_open_is_a_problem(
    tmp_path: Path, triton: dict[str, Any], is_fine: bool, words: str
) -> None:
    found = _checked(tmp_path, triton=triton)["triton access"]
    assert found.ok == is_fine
    assert words in found.detail
    assert "secret" not in found.detail


def test_its_certificates_are_looked_at(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    own, expired = authority.identity("own"), authority.identity("expired", days=-1)
    files = {"url": "gpu.invalid:1", "tls": True, "ca_file": authority.file}
    found = _checked(
        tmp_path, triton={**files, "certificate_file": own.certificate, "key_file": own.key}
    )
    assert [found[name].ok for name in ("triton access", "triton TLS", "triton CA")] == [
        True,
        True,
        True,
    ]
    found = _checked(
        tmp_path, triton={**files, "certificate_file": expired.certificate, "key_file": expired.key}
    )
    assert "expired" in found["triton TLS"].detail
    assert not _checked(
        tmp_path, triton={**files, "certificate_file": own.certificate, "key_file": expired.key}
    )["triton TLS"].ok


def test_the_embedded_one_says_what_it_cannot_do_and_which_flaws_that_keeps_out_of_reach(
    tmp_path: Path,
) -> None:
    require_triton()
    state = Path("/var/lib/hilum-that-is-not-there")
    found = _checked(state)
    assert found["triton sandbox"].detail.startswith("no network")
    assert ("neither ledger nor archive" in found["triton sandbox"].detail) == bool(
        landlock.version()
    )
    assert FLAWS in found["triton flaws"].detail
    traced = _checked(state, tracing={"endpoint": "http://127.0.0.1:4318/v1/traces"})[
        "triton sandbox"
    ].detail
    assert traced.startswith(
        "connects to port 4318 only" if landlock.version() >= 4 else "may connect ANYWHERE"
    )


@pytest.mark.skipif(not landlock.version(), reason="nothing is hidden without Landlock")
def test_a_ledger_among_the_programs_is_a_problem() -> None:
    require_triton()
    found = _checked(Path("/usr/local/share/hilum-that-is-not-there"))["triton sandbox"]
    assert not found.ok
    assert "/usr/local/share/hilum-that-is-not-there/archive" in found.detail
    assert "move site.state_dir" in found.advice


@pytest.mark.skipif(not landlock.version(), reason="nothing is hidden without Landlock")
def test_a_ledger_below_tmp_is_good_for_a_trial() -> None:
    require_triton()
    found = _checked(Path("/tmp/hilum-that-is-not-there"))["triton sandbox"]
    assert found.ok
    assert found.detail.endswith("for more than a trial move site.state_dir")


def test_a_region_that_is_open_to_others_is_a_problem(tmp_path: Path) -> None:
    require_triton()
    assert _checked(tmp_path)["shared memory"].ok
    region = Path("/dev/shm", f"{leftovers.prefix(tmp_path)}test")
    region.touch()
    region.chmod(0o644)
    try:
        assert str(region) in _checked(tmp_path)["shared memory"].detail
    finally:
        region.unlink()
