"""fleet: several hosts in network namespaces, and one after the other is lost, cut off or slow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from load_tests.fleet.isolation import problem, run_alone
from load_tests.fleet.scenarios import DELIVERING, SCENARIOS
from load_tests.load.measure import Goal
from load_tests.proof.part import Outcome, Plan
from testing.serving import REPOSITORY

# The short form: what a site meets most.
_SHORT = ("listener_host", "fail_over")
_PAGE = REPOSITORY / "docs/operate/two_hosts.md"


def fleet(plan: Plan) -> Outcome:
    """All scenarios but one; the short form two of them."""
    return _outcome(plan, _SHORT if plan.is_short else [n for n in SCENARIOS if n != DELIVERING])


def fleet_delivery(plan: Plan) -> Outcome:
    """The scenario that waits three minutes for the lease of a destination."""
    return _outcome(plan, [DELIVERING])


def two_hosts(plan: Plan) -> Outcome:
    """The page "Two hosts", followed word by word; it has no short form."""
    if reason := problem():
        return Outcome(left_out=reason)
    plan.folder.mkdir(parents=True)
    status = run_alone("load_tests.fleet.two_hosts", [str(_PAGE), str(plan.folder)])
    left = Goal("commands that say something else than the page", int(status != 0), "commands", 0)
    return Outcome(goals=(left,))


def _outcome(plan: Plan, scenarios: Sequence[str]) -> Outcome:
    if reason := problem():
        return Outcome(left_out=reason)
    plan.folder.mkdir(parents=True)
    answer = plan.folder / "answer.json"
    words = [str(plan.folder), str(answer), *scenarios]
    status = run_alone("load_tests.fleet.run", [*words, "--seed", str(plan.seed)])
    if not answer.is_file():
        ended = Goal("fleets that came up", 0, "fleets", 1, at_most=False)
        return Outcome(goals=(ended,), problems=(f"the run ended with status {status}",))
    return judged(json.loads(answer.read_text(encoding="utf-8")), len(scenarios))


def judged(found: Mapping[str, Any], planned: int) -> Outcome:
    """Goals over all scenarios, from what each yielded. `planned`: how many were to be run."""
    rows: Mapping[str, Mapping[str, Any]] = found["scenarios"]
    unsteady = sum(row["seconds_to_steady"] is None for row in rows.values())
    troubled = sum(bool(row["problems"]) for row in rows.values())
    goals = (
        Goal("acknowledged images lost", _sum(rows, "lost"), "images", 0),
        Goal("reports lost", _sum(rows, "unreported"), "studies", 0),
        Goal("reports twice with other content", _sum(rows, "reported_twice"), "documents", 0),
        Goal("stuck rows", _sum(rows, "stuck"), "rows", 0),
        Goal("stray files", _sum(rows, "stray"), "files", 0),
        Goal("scenarios without a steady state", unsteady, "scenarios", 0),
        Goal("scenarios with a problem", troubled, "scenarios", 0),
        Goal("scenarios that were run", len(rows), "scenarios", planned, at_most=False),
    )
    figures = {**found, "images_acknowledged": _sum(rows, "acknowledged")}
    problems = [f"{name}: {line}" for name, row in rows.items() for line in row["problems"]]
    problems += [f"{name}: left out: {reason}" for name, reason in found["left_out"].items()]
    return Outcome(figures, goals, tuple(problems))


def _sum(rows: Mapping[str, Mapping[str, Any]], key: str) -> int:
    return sum(row[key] for row in rows.values())
