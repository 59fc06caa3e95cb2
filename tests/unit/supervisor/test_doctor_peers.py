"""`hilum check` on the ways out.

What destinations accept, who is owed reports of storage commitment, and who is gone.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.sop_class import Comprehensive3DSRStorage, Verification

from hilum.deliver import probe_destination
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.supervisor.checks.peers import peers, unserved
from testing.serving import free_ports
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.peers.certificates import Authority


def test_who_answers_and_can_receive_nothing_is_a_problem(tmp_path: Path) -> None:
    pacs = AE("PACS")
    pacs.add_supported_context(Verification)
    takes = AE("TAKES")
    takes.add_supported_context(Comprehensive3DSRStorage)
    takes.require_called_aet = True
    servers = [ae.start_server(("127.0.0.1", 0), block=False) for ae in (pacs, takes)]
    ports = [server.server_address[1] for server in servers]
    authority, (dead,) = Authority(tmp_path / "certificates"), free_ports(1)
    own, both = authority.identity("hilum", days=-1), tmp_path / "both.pem"
    both.write_text(
        f"the former\n{own.certificate.read_text()}the new one\n{authority.file.read_text()}"
    )
    secured = {
        "tls": True,
        "certificate_file": own.certificate,
        "key_file": own.key,
        "ca_file": both,
    }
    with socket.create_server(("127.0.0.1", 0)) as silent:
        destinations = {
            "no_sr": {"port": ports[0]},
            "takes": {"port": ports[1], "ae_title": "TAKES"},
            "misnamed": {"port": ports[1], "ae_title": "TAEKS"},
            "silent": {"port": silent.getsockname()[1], "timeout_seconds": 0.5},
            "down": {"port": dead, **secured},
        }
        requesters = {
            "CR1": {"host": "127.0.0.1", "port": dead},
            "CR2": {"host": "127.0.0.1", "port": ports[0]},
        }
        checks = {
            check.name: check
            for check in peers(Settings(destinations=destinations, commitment=requesters))
        }  # type: ignore[arg-type]
    for server in servers:
        server.shutdown()
    expected = {
        "no_sr": False,
        "takes": True,
        "misnamed": False,
        "silent": False,
        "down": False,
        "down TLS": False,
        "down CA": True,
    }
    wanted = {f"destination {name}": ok for name, ok in expected.items()} | {
        "commitment CR1": False,
        "commitment CR2": True,
    }
    assert {name: check.ok for name, check in checks.items()} == wanted
    assert list(checks) == list(wanted), "in the order of the settings"
    assert "it accepts no structured report" in checks["destination no_sr"].detail
    assert "correct the AE Title of this destination" in checks["destination misnamed"].detail
    assert checks["destination down"].advice.startswith("Nothing answers there")
    assert (
        checks["destination down TLS"].advice
        == "Others refuse it: renew destinations.down.certificate_file."
    )
    assert checks["destination down CA"].detail.endswith(
        f", in 2 days: RENEW destinations.down.ca_file; 1 of 2 in {both} expired"
    )


def test_a_folder_is_judged_as_the_probe_judges_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    paths = {
        "file": tmp_path / "file",
        "new": tmp_path / "new",
        "nowhere": tmp_path / "not" / "there",
    }
    destinations = {name: {"kind": "folder", "path": path} for name, path in paths.items()}
    settings = Settings(
        destinations=destinations | {"back": {"kind": "sender", "ports": {"CR1": 104}}}
    )  # type: ignore[arg-type]
    probes = {
        f"destination {name}": probe_destination(name, item)
        for name, item in settings.destinations.items()
    }
    checks = {check.name: (check.ok, check.detail) for check in peers(settings)}
    assert checks == {
        name: (found.is_ok, f"{found.address}: {found.detail}") for name, found in probes.items()
    }
    assert [is_ok for is_ok, _ in checks.values()] == [False, True, False, True]


@pytest.mark.parametrize("is_there", [True, False])
def test_what_waits_for_a_destination_that_is_gone_is_a_problem(
    tmp_path: Path, is_there: bool
) -> None:
    url = migrated_sqlite(tmp_path)
    ledger = Ledger(url, clock := Clock())
    street = Street(ledger, clock, ("gone",))
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    settings = Settings(
        ledger={"url": url}, destinations={"gone" if is_there else "pacs": {"port": 104}}
    )  # type: ignore[arg-type]
    found = list(unserved(settings))
    assert [(check.name, check.ok) for check in found] == (
        [] if is_there else [("destination gone", False)]
    )
    assert is_there or "`hilum destinations forget gone`" in found[0].advice
    ledger.forget_destination("gone")
    assert list(unserved(settings)) == []
    ledger.close()
