"""The goals of the part `fleet` of the proof, from what its scenarios yielded."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from load_tests.fleet import demo
from load_tests.fleet.run import KnownFaults, ScenarioRow
from load_tests.fleet.topology import HOSTS, SERVERS, HostKind
from load_tests.proof.fleet import judged
from load_tests.proof.verdict import Verdict

_WHOLE = ScenarioRow("a host is lost", acknowledged=30, seconds_to_steady=4.0)


def found(*rows: ScenarioRow) -> dict[str, object]:
    return {"scenarios": {f"s{n}": asdict(row) for n, row in enumerate(rows)}, "left_out": {}}


def test_a_fleet_that_lost_nothing_keeps_all_goals():
    outcome = judged(found(_WHOLE, _WHOLE), 2)
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
        replace(_WHOLE, problems=["FaultFailed: the standby lacks no row"]),
    ],
    ids=["lost", "unreported", "twice", "stuck", "stray", "never steady", "no fault"],
)
def test_one_scenario_that_breaks_a_promise_breaks_a_goal(broken: ScenarioRow):
    assert [goal.holds for goal in judged(found(_WHOLE, broken), 2).goals].count(False) == 1


def test_a_scenario_that_was_left_out_breaks_a_goal_and_is_named():
    outcome = judged({**found(_WHOLE), "left_out": {"upgrade": "no history"}}, 2)
    assert not outcome.holds
    assert outcome.problems == ("upgrade: left out: no history",)


def test_rows_that_were_lost_excuse_documents_without_a_row_and_nothing_else():
    row = ScenarioRow("an unsynchronised standby")
    lines = ("9.1: came, and no row", "9.2: came with other bytes")
    KnownFaults().count(row, Verdict((), (), lines, (), ()), may_report_twice=True)
    assert row.found == {"documents_without_a_row": 1}
    assert row.reported_twice == 1
    assert row.problems == ["9.2: came with other bytes"]


def test_a_problem_counts_for_the_scenario_that_brought_it():
    verdict = Verdict(("1.2: acknowledged, and no row",), (), (), (), ())
    rows = [ScenarioRow("first"), ScenarioRow("second")]
    faults = KnownFaults()
    for row in rows:
        faults.count(row, verdict, may_report_twice=False)
    assert [row.lost for row in rows] == [1, 0]


@pytest.mark.parametrize(
    ("lost", "acknowledged", "is_kept"), [((), 130, True), ((), 0, False), (("1.2",), 130, False)]
)
def test_the_demo_keeps_its_promises_where_images_were_acknowledged_and_none_is_lost(
    lost: tuple[str, ...], acknowledged: int, is_kept: bool
):
    lines, found = demo.judged(Verdict(lost, (), (), (), ()), acknowledged, "4.0")
    assert found is is_kept
    assert lines[-1].startswith("KEPT" if is_kept else "BROKEN")


def test_problems_name_their_scenario():
    outcome = judged(found(replace(_WHOLE, problems=["1.2.3: acknowledged, and no row"])), 1)
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
    assert all(spec.kind is HostKind.HILUM for spec in SERVERS)
