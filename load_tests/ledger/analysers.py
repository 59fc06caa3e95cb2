"""Analysers with a null model: what one reading costs the database, by the number of analysers.

An analyser here claims readings and ends them, as the real one does, without decoding or a model.
The cost is the CPU of the database's sessions, from /proc: on a machine with few cores the wall time
says nothing about several hosts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from hilum.domain import Advance, ReadingState
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from load_tests.ledger.backends import client_backends, running_ms
from load_tests.ledger.claims import make_due

AT_ONCE: Final = 8
_IMAGES: Final = 40
_LEASE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of several analysers. CPU of the sessions in milliseconds a reading."""

    analysers: int
    readings: int
    wall_seconds: float
    database_ms_per_reading: float


def measure(url: str, analysers: int, readings: int) -> Turn:
    """Let so many processes read so many due readings. Their start is not counted."""
    engine = open_engine(url)
    for _ in range(readings // _IMAGES):
        make_due(engine, _IMAGES)
    workers = [_started(url, f"bench-{number}") for number in range(analysers)]
    for worker in workers:
        _line_of(worker)  # it is connected
    sessions = client_backends(engine)
    before = running_ms(sessions)
    began = time.monotonic()
    for worker in workers:
        _send(worker)
    done = sum(int(_line_of(worker)) for worker in workers)
    taken = time.monotonic() - began
    cost = running_ms(sessions) - before
    for worker in workers:
        worker.communicate("\n")
    engine.dispose()
    return Turn(analysers, done, round(taken, 2), round(cost / done, 4))


def _started(url: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "load_tests.ledger.analysers", url, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _send(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def _line_of(worker: subprocess.Popen[str]) -> str:
    """Its next line. Raises RuntimeError where it has ended."""
    assert worker.stdout is not None
    if not (line := worker.stdout.readline()):
        raise RuntimeError("an analyser of the bench has failed")
    return line


def serve(url: str, name: str) -> None:
    """Connect, read what is due at a line of the input, and stay until the next line.

    So its session is still there when its CPU is read.
    """
    with closing(Ledger(url)) as ledger:
        ledger.claim("report", 1, name, _LEASE_SECONDS)
        print("ready", flush=True)
        sys.stdin.readline()
        print(_read_all(ledger, name), flush=True)
        sys.stdin.readline()


def _read_all(ledger: Ledger, name: str) -> int:
    """Read until nothing is due, and return the number of readings."""
    count = 0
    analysed = Advance(ReadingState.ANALYSED, {"logits": [0.5] * 14})
    while jobs := ledger.claim("analyse", AT_ONCE, name, _LEASE_SECONDS):
        count += sum(ledger.advance("analyse", [(job.lease, analysed) for job in jobs]))
    return count


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
