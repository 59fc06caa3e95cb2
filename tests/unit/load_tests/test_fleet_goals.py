"""The goals of the part `fleet` of the proof, from what its scenarios yielded."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from load_tests.fleet.run import Row
from load_tests.fleet.topology import HOSTS, SERVERS, Kind
from load_tests.proof.fleet import judged

_WHOLE = Row("a host is lost", acknowledged=30, seconds_to_steady=4.0)


def found(*rows: Row) -> dict[str, object]:
    return {"scenarios": {f"s{n}": asdict(row) for n, row in enumerate(rows)}, "left_out": {}}


def test_a_fleet_that_lost_nothing_keeps_all_goals():
    outcome = judged(found(_WHOLE, _WHOLE))
    assert outcome.holds
    assert outcome.figures["images_acknowledged"] == 60


@pytest.mark.parametrize(
    "broken",
    [
        replace(_WHOLE, lost=1),
        replace(_WHOLE, unreported=1),
        replace(_WHOLE, reported_twice=1),
        replace(_WHOLE, stuck=1),
        replace(_WHOLE, stray=1),
        replace(_WHOLE, seconds_to_steady=None),
    ],
    ids=["lost", "unreported", "twice", "stuck", "stray", "never steady"],
)
def test_one_scenario_that_breaks_a_promise_breaks_a_goal(broken: Row):
    assert not judged(found(_WHOLE, broken)).holds


def test_a_run_without_scenarios_is_no_success():
    assert not judged(found()).holds


def test_problems_name_their_scenario():
    outcome = judged(found(replace(_WHOLE, problems=["1.2.3: acknowledged, and no row"])))
    assert outcome.problems == ("s0: 1.2.3: acknowledged, and no row",)


def test_hosts_have_names_and_addresses_of_their_own():
    assert len({spec.name for spec in HOSTS}) == len({spec.address for spec in HOSTS}) == len(HOSTS)


def test_each_role_that_works_has_two_hosts():
    roles = [spec.role for spec in SERVERS]
    assert {role: roles.count(role) for role in ("listener", "analyser", "dispatcher")} == {
        "listener": 2,
        "analyser": 2,
        "dispatcher": 2,
    }
    assert all(spec.kind is Kind.HILUM for spec in SERVERS)
