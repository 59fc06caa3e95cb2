"""Hosts in readiness, metrics, REST and on the front page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hilum.api.readiness import ReadinessFacts, checks
from hilum.domain import Host, HostFacts
from hilum.settings import Receive
from tests.support.server.api_client import Rig, open_rig

OWN = "this machine"


def beat(rig: Rig, machine: str, started_at: float = 1.0, **facts: Any) -> None:
    """Write the heartbeat of a supervisor and of a listener. All have one host name."""
    pid = len(machine)
    told = HostFacts(machine=machine, roles="listener", version="1.0.0", **facts)
    ledger = rig.street.ledger
    ledger.beat(
        f"{machine}:supervisor",
        "supervisor",
        pid,
        started_at=started_at,
        is_ready=True,
        facts=told,
    )
    ledger.beat(f"{machine}:listener", "listener", pid, started_at=started_at, is_ready=True)


def hosts_check(rig: Rig) -> dict[str, Any]:
    """Return the check of readiness that is about hosts."""
    roles = rig.client.get("/health/ready", params={"role": "receive"}).json()["roles"]
    (found,) = (check for check in roles[0]["checks"] if check["name"] == "hosts")
    return dict(found)


@pytest.fixture
def clock_differs(rig: Rig) -> Rig:
    """A host whose clock is ahead."""
    beat(rig, OWN, clock_offset_seconds=12.25, round_trip_seconds=0.01)
    return rig


def test_a_wrong_clock_is_a_note_and_keeps_the_role_ready(clock_differs: Rig) -> None:
    check = hosts_check(clock_differs)
    assert check["ok"]
    assert check["detail"].startswith("1 alive; ")
    assert check["detail"].endswith(": its clock is 12 s ahead of the ledger's")
    assert "NTP" in check["advice"]


def test_machines_whose_identity_is_hidden_are_counted_by_their_names() -> None:
    """In a sandbox all of them have the same, empty, one."""
    alive = [
        Host(name, name, 1, 1.0, 1.0, 0.0, HostFacts(roles="listener")) for name in ("ai1", "ai2")
    ]
    facts = ReadinessFacts(None, None, Receive(), hosts=alive)
    (check,) = (check for check in checks("receive", facts) if check.name == "hosts")
    assert check.detail == "2 alive"


def test_metrics_tell_the_clock_of_each_host_and_count_faults(clock_differs: Rig) -> None:
    text = clock_differs.client.get("/metrics").text
    assert "hilum_clock_offset_seconds{host=" in text
    assert 'hilum_host_problems{fault="clock"} 1.0' in text
    assert 'hilum_host_problems{fault="name"} 0.0' in text


def test_metrics_say_nothing_of_hosts_while_the_ledger_is_away(clock_differs: Rig) -> None:
    """A zero would say that all is well."""
    for file in clock_differs.folder.glob("ledger.sqlite*"):
        file.rename(file.with_name(f"{file.name}.away"))
    text = clock_differs.client.get("/metrics").text
    assert "hilum_ledger_up 0.0" in text
    assert "hilum_host_problems{" not in text


def test_rest_shows_hosts_with_their_faults_and_processes(clock_differs: Rig) -> None:
    (host,) = clock_differs.get("/api/v1/queues")["hosts"]
    assert (host["roles"], host["version"], host["is_alive"]) == ("listener", "1.0.0", True)
    assert (host["processes"], host["ready"]) == ({"listener": 1}, {"listener": 1})
    assert [problem["fault"] for problem in host["problems"]] == ["clock"]
    assert "machine" not in host


def test_the_front_page_names_hosts_with_faults(clock_differs: Rig) -> None:
    page = clock_differs.client.get("/").text
    assert "Hosts that do not fit together" in page
    assert "its clock is 12 s ahead of the ledger" in page


@pytest.mark.parametrize(("started_at", "is_ready"), [(0.5, True), (2.0, False)])
def test_of_two_machines_with_one_name_the_later_one_is_not_ready(
    tmp_path: Path, started_at: float, is_ready: bool
) -> None:
    with open_rig(tmp_path, machine=OWN) as rig:
        beat(rig, OWN, started_at)
        beat(rig, "another machine")
        check = hosts_check(rig)
        assert check["ok"] is is_ready
        assert "2 machines have this name" in check["detail"]
