"""`hilum check` on storage commitment of what destinations accepted."""

from __future__ import annotations

from typing import Any

import pytest

from hilum.settings import CStoreDestination, Settings
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.commitment import commitment
from testing.serving import free_ports
from tests.support.peers.commitment_scp import ScriptedCommitmentScp


def checks(port: int, receive: dict[str, Any] | None = None, **changes: Any) -> list[Check]:
    pacs = {"port": port, "commitment": True, "timeout_seconds": 5.0, **changes}
    settings = Settings(destinations={"pacs": pacs}, receive=receive or {})  # type: ignore[arg-type]
    destination = settings.destinations["pacs"]
    assert isinstance(destination, CStoreDestination)
    return list(commitment("pacs", destination, settings))


def test_a_receiver_that_takes_requests_is_well() -> None:
    with ScriptedCommitmentScp() as scp:
        (check,) = checks(scp.port)
    assert check.ok
    assert "takes requests for storage commitment" in check.detail


def test_a_receiver_that_is_away_is_a_problem() -> None:
    (port,) = free_ports(1)
    (check,) = checks(port)
    assert not check.ok
    assert "destinations.pacs.commitment = false" in check.advice


@pytest.mark.parametrize(
    ("receive", "words"),
    [
        ({"ae_titles": ["OTHER"]}, "reports to the AE Title HILUM, which receive.ae_titles"),
        ({"calling_ae_titles": ["CR1"]}, "receive.calling_ae_titles does not have PACS"),
    ],
)
def test_a_listener_that_would_reject_its_reports_is_a_problem(
    receive: dict[str, Any], words: str
) -> None:
    with ScriptedCommitmentScp() as scp:
        _, check = checks(scp.port, receive)
    assert not check.ok
    assert words in check.detail


def test_a_listener_that_names_it_among_its_senders_is_well() -> None:
    with ScriptedCommitmentScp() as scp:
        assert len(checks(scp.port, {"calling_ae_titles": ["PACS"]})) == 1
