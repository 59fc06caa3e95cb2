"""power_street: the machine of a whole street loses its power, again and again.

All that was acknowledged is reported, and once only.

Received files, readings, results and documents lie on a file system of their own, as in `power`.
The PACS is another machine: what it was sent it keeps, and a document that is sent again after a
cut must have the bytes that it had before.
"""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack
from typing import Final

from load_tests.load.measure import Goal
from load_tests.proof.listeners.processes import has_ended, stand_still
from load_tests.proof.part import Found, Outcome, Plan, conclude, pause
from load_tests.proof.power_disk import PowerDisk, kinds
from load_tests.proof.router import Load
from load_tests.proof.settings import MANY_LAPSES
from load_tests.proof.small_disk import may_mount
from load_tests.proof.street.street import START_SECONDS, NotQuiet, Street, wait_for
from testing.serving import HilumEnded

_CUTS = 15
_SHORT_CUTS = 1
_DISK_MIB: Final = 1024
# Of load before a cut. Leases of the former life end ten seconds after a start: without waiting for
# that no cut would meet a delivery.
_SHORTEST_SECONDS = 0.0
_LONGEST_SECONDS = 3.0
_REPORTING_SHARE = 0.6
_REPORT_SECONDS = 60.0
_ENDING_SECONDS = 20.0


def power_street(plan: Plan) -> Outcome:
    """15 cuts on each file system; the short form one on the first."""
    if not may_mount():
        return Outcome(left_out="needs the right to mount a file system; run it as root")
    wanted = kinds()[:1] if plan.is_short else kinds()
    if not wanted:
        return Outcome(left_out="needs mkfs.ext4 and mkfs.xfs")
    outcomes = {kind: _on(kind, plan) for kind in wanted}
    goals = [
        Goal(f"{kind}: {goal.name}", goal.value, goal.unit, goal.goal, goal.at_most)
        for kind, its in outcomes.items()
        for goal in its.goals
    ]
    problems = [f"{kind}: {problem}" for kind, its in outcomes.items() for problem in its.problems]
    summed = {
        name: sum(its.figures.get(name, 0) for its in outcomes.values())
        for name in ("studies", "images_acknowledged", "repeated_reports")
    }
    cuts = {kind: its.figures.get("cuts", 0) for kind, its in outcomes.items()}
    return Outcome(
        {
            "cuts": cuts,
            **summed,
            "by_file_system": {kind: its.figures for kind, its in outcomes.items()},
        },
        tuple(goals),
        tuple(problems),
    )


def _on(kind: str, plan: Plan) -> Outcome:
    folder = plan.folder / kind
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(PowerDisk(kind, folder / "state", _DISK_MIB))
            street = stack.enter_context(
                Street(folder, plan.tiny, Load(), seed=plan.seed, pipeline=MANY_LAPSES["pipeline"])
            )
            return conclude(plan, street, _cuts(plan, street, disk))
        except (NotQuiet, HilumEnded) as error:
            return Outcome(
                goals=(Goal("streets that did not come to rest", 1, "streets", 0),),
                problems=(str(error),),
            )


def _cuts(plan: Plan, street: Street, disk: PowerDisk) -> Found:
    wanted = int(plan.of(_CUTS, _SHORT_CUTS))
    chance = plan.random
    street.begin()
    for number in range(1, wanted + 1):
        _cut(street, disk, chance)
        plan.say(
            f"{number} cuts, {len(street.router.books.acknowledged)} images acknowledged,"
            f" {street.pacs.arrivals.count()} studies reported"
        )
    return Found({"cuts": wanted})


def _cut(street: Street, disk: PowerDisk, chance: random.Random) -> None:
    """Under load; everything stands still from the cut on."""
    street.hilum.wait_until_ready(START_SECONDS)
    if chance.random() < _REPORTING_SHARE:
        before = street.pacs.arrivals.count()
        wait_for(
            lambda: street.pacs.arrivals.count() > before, _REPORT_SECONDS, "a report after a cut"
        )
    pause(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS))
    street.signal([street.hilum.pid], signal.SIGSTOP)  # it starts nobody now
    everyone = list(street.roles())
    street.signal(everyone, signal.SIGSTOP)
    wait_for(
        lambda: all(map(stand_still, everyone)), _ENDING_SECONDS, "all processes to stand still"
    )
    disk.cut()
    street.signal(everyone)
    wait_for(lambda: all(map(has_ended, everyone)), _ENDING_SECONDS, "all processes to end")
    disk.restore()
    street.start()
    street.fault()
