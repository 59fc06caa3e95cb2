"""A campaign of very many planned series: the cost of its status, in time and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hilum.domain import PlannedSeries
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.migrations.migrate import migrate
from testing.serving import Hilum

_TOGETHER = 1000
_TIMES = 5  # of which the fastest counts: other programs of the machine only add

_TIMER = """
import resource, subprocess, sys, time
began = time.monotonic()
subprocess.run(sys.argv[1:], check=True)
wall = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class PlannedFigures:
    """Wall and CPU seconds, and MiB, of one `hilum campaign status` over so many series."""

    series: int
    plan_seconds: float
    status_seconds: float
    status_cpu_seconds: float
    status_mebibytes: float


def planned(folder: Path, series: int) -> PlannedFigures:
    """Plan that many series in a ledger of their own, and show their status."""
    server = Hilum(folder, {})
    server.write_settings()
    (folder / "state").mkdir(parents=True)
    url = f"sqlite:///{folder / 'state' / 'ledger.sqlite'}"
    migrate(url)
    began = time.monotonic()
    with closing(Campaigns(url)) as campaigns:
        known = campaigns.create("many", "archive", {})
        for part in _parts(series):
            campaigns.add(known.id, part)
        campaigns.end_plan("many")
    planned_seconds = time.monotonic() - began
    wall, cpu, mebibytes = _fastest(server.command("campaign", "status", "many"))
    return PlannedFigures(series, planned_seconds, wall, cpu, mebibytes)


def _fastest(command: Sequence[str]) -> tuple[float, float, float]:
    """Wall and CPU seconds, and MiB, of the fastest of some runs. Raises CalledProcessError."""
    return min(_timed(command) for _ in range(_TIMES))


def _timed(command: Sequence[str]) -> tuple[float, float, float]:
    # A small program starts it: the memory of the one that forks counts as that of its child.
    answer = subprocess.run(
        [sys.executable, "-S", "-c", _TIMER, *command], check=True, capture_output=True, text=True
    )
    wall, cpu, kibibytes = map(float, answer.stderr.split()[-3:])
    return wall, cpu, kibibytes / 1024


def _parts(series: int) -> Iterator[PlanPart]:
    for start in range(0, series, _TOGETHER):
        rows = [
            (
                PlannedSeries(
                    f"1.2.826.0.1.3680043.10.{number}",
                    f"1.2.826.0.1.3680043.10.{number}.1",
                    day=f"2019{1 + number % 12:02}{1 + number % 28:02}",
                    modality="DX",
                    images=2,
                ),
                (),
            )
            for number in range(start, min(start + _TOGETHER, series))
        ]
        yield PlanPart(str(start), rows)


if __name__ == "__main__":
    print(planned(Path(sys.argv[1]), int(sys.argv[2])))
