"""The scenarios on one fleet, one after the other: `python -m load_tests.fleet.run FOLDER ANSWER …`.

`load_tests.proof.fleet` starts it in namespaces of its own.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from load_tests.fleet.fleet import DRAIN_SECONDS, Fleet, load
from load_tests.fleet.former_version import FormerVersion
from load_tests.fleet.host import HostDown
from load_tests.fleet.scenarios import SCENARIOS, UPGRADE, FaultFailed, FleetScenario
from load_tests.fleet.servers import THIS
from load_tests.fleet.steadiness import Steadiness
from load_tests.proof.router import Router
from load_tests.proof.street.street import NotQuiet, wait_for
from load_tests.proof.verdict import WITHOUT_ROW, Verdict
from testing.tiny_release import make_tiny

_RATE = 1.0
_FIRST_IMAGES = 6
_STEADY_SECONDS = 240.0


@dataclass(slots=True)
class ScenarioRow:
    """What one scenario yielded."""

    what: str
    acknowledged: int = 0
    lost: int = 0
    unreported: int = 0
    reported_twice: int = 0
    stuck: int = 0
    stray: int = 0
    seconds_to_steady: float | None = None
    longest_wait_for_a_report: float = 0.0
    longest_time_without_acknowledgement: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class KnownFaults:
    """What the verdicts so far have found: each fault counts for the scenario that brought it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def count(self, row: ScenarioRow, verdict: Verdict, *, may_report_twice: bool) -> None:
        """Note in the row what the verdict finds and no earlier one found."""
        row.lost = self._fresh(row, verdict.lost)
        row.unreported = self._fresh(row, verdict.unreported)
        row.stuck = len(verdict.stuck)
        row.stray = self._fresh(row, verdict.stray)
        if may_report_twice:
            renewed = [line for line in verdict.contradicting if line.endswith(WITHOUT_ROW)]
            row.found["documents_without_a_row"] = self._fresh(row, renewed, is_problem=False)
        row.reported_twice = self._fresh(row, verdict.contradicting)
        row.problems += sorted(set(verdict.stuck))

    def _fresh(self, row: ScenarioRow, lines: Sequence[str], *, is_problem: bool = True) -> int:
        """How many of these no earlier scenario had; they are noted as problems."""
        found = [line for line in lines if line not in self._known]
        self._known.update(found)
        if is_problem:
            row.problems += found[:5]
        return len(found)


class Course:
    """Runs scenarios on a fleet, one after the other."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._seed = seed
        self._faults = KnownFaults()

    def run(self, scenario: FleetScenario) -> ScenarioRow:
        """One scenario under load, judged when all is quiet, then mended."""
        self._seed += 1
        router = self._fleet.router(self._seed, load(_RATE))
        row = ScenarioRow(scenario.what)
        try:
            self._disturb(scenario, router, row)
        except (NotQuiet, HostDown, FaultFailed) as error:
            row.problems.append(f"{type(error).__name__}: {error}")
        if not router.finish(DRAIN_SECONDS):
            row.problems.append("images that were begun were not accepted")
        self._drain(row)
        row.acknowledged = len(router.books.acknowledged)
        row.answers = dict(router.books.answers)
        verdict = self._fleet.verdict()
        self._faults.count(row, verdict, may_report_twice=scenario.may_report_twice)
        scenario.restore(self._fleet)
        return row

    def _disturb(self, scenario: FleetScenario, router: Router, row: ScenarioRow) -> None:
        router.start()
        wait_for(
            lambda: len(router.books.acknowledged) >= _FIRST_IMAGES, _STEADY_SECONDS, "the load"
        )
        with Steadiness(self._fleet, router) as steadiness:
            row.found = dict(scenario.fault(self._fleet))
            steadiness.wait(_STEADY_SECONDS)
        row.seconds_to_steady = steadiness.seconds
        row.longest_wait_for_a_report = round(steadiness.longest_wait, 1)
        row.longest_time_without_acknowledgement = round(steadiness.longest_silence, 1)

    def _drain(self, row: ScenarioRow) -> None:
        try:
            self._fleet.wait_until_quiet()
        except NotQuiet as error:
            row.problems.append(str(error))


def main(words: Sequence[str] | None = None) -> int:
    """Writes ANSWER. Exit code 0 even where goals are missed: the answer says it."""
    options = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    answer = run(options.folder, options.scenarios or list(SCENARIOS), options.seed)
    options.answer.write_text(json.dumps(answer), encoding="utf-8")
    return 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="load_tests.fleet.run", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to work")
    parser.add_argument("answer", type=Path, help="a JSON file to write")
    parser.add_argument("scenarios", nargs="*", help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def run(folder: Path, names: Sequence[str], seed: int) -> Mapping[str, Any]:
    """Figures by scenario, and those that were left out with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}
    code = THIS
    if UPGRADE in names:
        former = FormerVersion(folder / "former")
        if reason := former.unpack():
            left_out[UPGRADE] = reason
        else:
            code = former.code
    begun_at = time.monotonic()
    rows: dict[str, Any] = {}
    with Fleet(folder, make_tiny(folder / "release"), say=say, code=code) as fleet:
        start_seconds = round(time.monotonic() - begun_at, 1)
        course = Course(fleet, seed)
        for name in [name for name in SCENARIOS if name in names and name not in left_out]:
            say(f"{name}: {SCENARIOS[name].what}")
            row = course.run(SCENARIOS[name])
            say(_line(row))
            rows[name] = asdict(row)
    return {"start_seconds": start_seconds, "scenarios": rows, "left_out": left_out}


def _line(row: ScenarioRow) -> str:
    return (
        f"  acknowledged {row.acknowledged}, lost {row.lost}, twice {row.reported_twice},"
        f" stuck {row.stuck}, steady after {row.seconds_to_steady} s"
    )


def say(text: str) -> None:
    """Progress, at most 80 columns."""
    print(f"{time.strftime('%H:%M:%S')}  {text}"[:80], flush=True)


if __name__ == "__main__":
    sys.exit(main())
