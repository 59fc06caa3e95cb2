"""What does not fit together among hosts, each case in words, with its remedy."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hilum.domain import (
    NO_ARCHIVE,
    SILENT_ARCHIVE,
    Host,
    HostFacts,
    HostFault,
    has_taken_name,
    host_items,
    host_problems,
)

TOLERANCE = 2.0


def host(name: str, started_at: float = 1.0, age_seconds: float = 1.0, **facts: Any) -> Host:
    """A server that fits to all others, but for these facts."""
    usual: dict[str, Any] = {
        "machine": f"machine-of-{name}",
        "version": "1.2.0",
        "settings": {"site": "a", "destinations": "b"},
        "archive": "archive-1",
    }
    return Host(
        name=f"{name}:supervisor:7",
        host=name,
        pid=7,
        started_at=started_at,
        beat_at=100.0,
        age_seconds=age_seconds,
        facts=HostFacts(**{**usual, **facts}),
    )


def faults(*hosts: Host) -> list[tuple[HostFault, str]]:
    """Faults and the hosts that have them."""
    return [(problem.fault, problem.host) for problem in host_problems(hosts, TOLERANCE)]


def test_hosts_that_agree_have_no_problem() -> None:
    assert faults(host("a"), host("b"), host("c")) == []


@pytest.mark.parametrize(
    ("offset", "round_trip", "said"),
    [
        (12.0, 0.01, "its clock is 12 s ahead of the ledger's"),
        (-12.0, 0.01, "its clock is 12 s behind the ledger's"),
    ],
)
def test_a_wrong_clock_is_named_with_its_side(offset: float, round_trip: float, said: str) -> None:
    wrong = host("a", clock_offset_seconds=offset, round_trip_seconds=round_trip)
    (problem,) = host_problems([wrong, host("b")], TOLERANCE)
    assert (problem.fault, problem.host, problem.detail) == (HostFault.CLOCK, "a", said)
    assert "NTP" in problem.advice


def test_what_a_slow_round_trip_explains_is_no_wrong_clock() -> None:
    assert faults(host("a", clock_offset_seconds=12.0, round_trip_seconds=22.0)) == []


def test_two_machines_of_one_name_are_both_named_and_the_later_one_gives_way() -> None:
    first = host("a", machine="m1")
    second = host("a", machine="m2", started_at=2.0)
    assert faults(first, second) == [(HostFault.NAME, "a"), (HostFault.NAME, "a")]
    assert has_taken_name([first, second], "m2")
    assert not has_taken_name([first, second], "m1")


def test_two_servers_of_one_machine_share_its_name() -> None:
    assert faults(host("a", roles="listener"), host("a", started_at=2.0, roles="api")) == []


def test_machines_of_one_name_are_counted_and_not_their_servers() -> None:
    servers = [host("a", machine="m1"), host("a", machine="m1", started_at=2.0)]
    problems = host_problems([*servers, host("a", machine="m2", started_at=3.0)], TOLERANCE)
    assert {problem.detail.partition(",")[0] for problem in problems} == {
        "2 machines have this name"
    }


def test_a_machine_that_is_not_known_is_no_other_machine() -> None:
    hosts = [host("a", machine=""), host("a", machine="m2", started_at=2.0)]
    assert faults(*hosts) == []
    assert not has_taken_name(hosts, "m2")


def test_a_machine_that_is_silent_has_left_its_name() -> None:
    gone = host("a", machine="m1", age_seconds=60)
    assert faults(gone, host("a", machine="m2", started_at=2.0)) == []


def test_of_three_hosts_the_one_whose_settings_differ_is_named_with_the_sections() -> None:
    odd = host("c", settings={"site": "a", "destinations": "other"})
    (problem,) = host_problems([host("a"), host("b"), odd], TOLERANCE)
    assert (problem.fault, problem.host) == (HostFault.SETTINGS, "c")
    assert problem.detail == "its settings differ from those of other hosts in destinations"


def test_of_two_hosts_whose_settings_differ_both_are_named() -> None:
    assert faults(host("a"), host("b", settings={"site": "other", "destinations": "b"})) == [
        (HostFault.SETTINGS, "a"),
        (HostFault.SETTINGS, "b"),
    ]


def test_settings_are_compared_within_a_version() -> None:
    newer = host("b", version="1.10.0", settings={"site": "c", "destinations": "d"})
    assert faults(host("a"), newer) == [(HostFault.VERSION, "a")]


def test_versions_compare_as_numbers() -> None:
    (problem,) = host_problems([host("a"), host("b", version="1.10.0")], TOLERANCE)
    assert problem.detail == "it runs version 1.2.0, b 1.10.0"


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (NO_ARCHIVE, "it sees no archive, and other hosts do"),
        (SILENT_ARCHIVE, "its archive does not answer, or cannot be read"),
        ("archive-2", "it has another archive than other hosts"),
    ],
)
def test_a_host_without_the_archive_of_the_others_is_named(archive: str, said: str) -> None:
    (problem,) = host_problems([host("a"), host("b"), host("c", archive=archive)], TOLERANCE)
    assert (problem.fault, problem.host, problem.detail) == (HostFault.ARCHIVE, "c", said)


def test_a_server_that_needs_no_archive_is_not_asked_for_one() -> None:
    assert faults(host("a"), host("b", archive=None)) == []


def test_a_new_installation_has_no_archive_yet() -> None:
    assert faults(host("a", archive=NO_ARCHIVE), host("b", archive=NO_ARCHIVE)) == []


def test_facts_come_back_from_a_heartbeat_without_what_a_newer_version_adds() -> None:
    facts = host("a", clock_offset_seconds=0.25).facts
    added = json.dumps({**json.loads(facts.dump()), "new": 1})
    assert HostFacts.load(added) == facts


def test_one_digest_stands_for_all_settings() -> None:
    same = replace(host("a").facts, settings={"destinations": "b", "site": "a"})
    assert host("a").facts.settings_digest == same.settings_digest
    assert len(same.settings_digest) == 8
    assert replace(same, settings={"site": "b"}).settings_digest != same.settings_digest


def test_living_hosts_come_first_and_each_has_its_problems() -> None:
    gone = host("a", age_seconds=1000, clock_offset_seconds=50.0)
    wrong = host("b", clock_offset_seconds=50.0)
    items = host_items([gone, wrong], TOLERANCE)
    assert [(item["host"], item["is_alive"], len(item["problems"])) for item in items] == [
        ("b", True, 1),
        ("a", False, 0),
    ]
