"""Analysers with a null model: what one reading costs the database, by the number of analysers.

An analyser here claims readings and ends them, as the real one does, without decoding or a model.
The cost is the CPU of all PostgreSQL processes, from /proc: on a machine with few cores the wall
time says nothing about several hosts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.domain import Advance, ReadingState
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from load_tests.ledger.backends import cpu_seconds, postmaster_of
from load_tests.ledger.claims import make_due

AT_ONCE: Final = 8
_IMAGES: Final = 40
_LEASE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of several analysers. CPU of PostgreSQL in milliseconds a reading."""

    analysers: int
    readings: int
    wall_seconds: float
    database_ms_per_reading: float


def measure(url: str, folder: Path, analysers: int, readings: int) -> Turn:
    """Let so many processes read so many due readings.

    `folder`: of the cluster, whose postmaster's process id is in it.
    """
    engine = open_engine(url)
    for _ in range(readings // _IMAGES):
        make_due(engine, _IMAGES)
    engine.dispose()
    postmaster = postmaster_of(folder)
    before = cpu_seconds(postmaster)
    began = time.monotonic()
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "load_tests.ledger.analysers", url, f"bench-{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(analysers)
    ]
    done = sum(int(worker.communicate()[0]) for worker in workers)
    taken = time.monotonic() - began
    if any(worker.returncode for worker in workers):
        raise RuntimeError("an analyser of the bench has failed")
    cost = cpu_seconds(postmaster) - before
    return Turn(analysers, done, taken, cost * 1e3 / done)


def read_all(url: str, name: str) -> int:
    """Read until nothing is due, and return the number of readings."""
    count = 0
    analysed = Advance(ReadingState.ANALYSED, {"logits": [0.5] * 14})
    with closing(Ledger(url)) as ledger:
        while jobs := ledger.claim("analyse", AT_ONCE, name, _LEASE_SECONDS):
            count += sum(ledger.advance("analyse", [(job.lease, analysed) for job in jobs]))
    return count


if __name__ == "__main__":
    print(read_all(sys.argv[1], sys.argv[2]))
