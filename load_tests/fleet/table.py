"""The fleet as a table of at most 80 columns: who is on, ready, and how much waits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping

from load_tests.fleet.engine import is_listening
from load_tests.fleet.fleet import Fleet
from load_tests.fleet.topology import (
    DICOM_PORT,
    GRPC_PORT,
    HOSTS,
    LEDGER_PORT,
    PACS_PORT,
    SERVERS,
    HostKind,
    HostSpec,
)
from load_tests.proof.router import Router

WIDTH = 80
_PORTS: Mapping[HostKind, int] = {
    HostKind.TRITON: GRPC_PORT,
    HostKind.DATABASE: LEDGER_PORT,
    HostKind.PACS: PACS_PORT,
    HostKind.BALANCER: DICOM_PORT,
}
_LOOKS = 4
_STAGES = ("reading", "study", "result", "delivery")
_CLEAR = "\033[H\033[2J"


class FleetTable:
    """Drawn again at each `draw`; on a terminal in place of the one before."""

    def __init__(self, fleet: Fleet, router: Router) -> None:
        self.last: list[str] = []
        self._fleet = fleet
        self._router = router
        self._events: list[str] = []
        self._begun_at = time.monotonic()
        self._counts: list[tuple[float, Mapping[str, int]]] = []

    def note(self, text: str) -> None:
        """What has just happened; the last four are shown."""
        self._events.append(f"{time.monotonic() - self._begun_at:5.0f} s  {text}"[:WIDTH])

    def draw(self) -> None:
        """Look at every host, then print."""
        done = {spec.name: self._fleet.images_done(spec) for spec in SERVERS}
        self._counts.append((time.monotonic(), done))
        self.last = [line[:WIDTH] for line in self._lines()]
        is_terminal = sys.stdout.isatty()
        print((_CLEAR if is_terminal else "") + "\n".join(self.last), flush=True)

    def _lines(self) -> Iterable[str]:
        yield f"{'host':<10} {'address':<12} {'role':<13} {'state':<10} {'images/s':>8}"
        for spec in HOSTS:
            rate = f"{self._rate(spec.name):8.1f}" if spec.role in {"listener", "analyser"} else ""
            role = spec.role or spec.kind.value
            yield f"{spec.name:<10} {spec.address:<12} {role:<13} {self._state(spec):<10} {rate:>8}"
        yield ""
        yield self._queues()
        yield self._sums()
        yield ""
        yield from self._events[-4:]

    def _state(self, spec: HostSpec) -> str:
        host = self._fleet.hosts[spec.name]
        if not host.is_on:
            return "OFF"
        if spec.kind is HostKind.HILUM:
            return "ready" if self._fleet.is_ready(spec) else "not ready"
        if spec.kind is HostKind.DATABASE:
            is_primary = host is self._fleet.databases.primary
            return "primary" if is_primary else "standby"
        return "ready" if is_listening(spec.address, _PORTS[spec.kind]) else "not ready"

    def _rate(self, name: str) -> float:
        """Over the last looks; one may take seconds on a busy machine."""
        now, counts = self._counts[-1]
        began, first = self._counts[max(0, len(self._counts) - 1 - _LOOKS)]
        seconds = now - began
        return max(0, counts[name] - first[name]) / seconds if seconds else 0.0

    def _queues(self) -> str:
        rows = self._fleet.open_rows()
        if rows is None:
            return "queues     (no PostgreSQL answers)"
        depths = {stage: _waiting(rows, stage) for stage in _STAGES}
        words = ", ".join(f"{stage} {count}" for stage, count in depths.items())
        return f"queues     {words}, unindexed files {self._fleet.unindexed()}"

    def _sums(self) -> str:
        books = self._router.books
        reported = len(books.images_of) - len(self._fleet.unreported())
        return (
            f"sender     {len(books.acknowledged)} images acknowledged,"
            f" {reported} of {len(books.images_of)} studies reported"
        )


def _waiting(rows: Mapping[str, int], table: str) -> int:
    return sum(count for kind, count in rows.items() if kind.split()[0] == table)


def every_second(
    table: FleetTable, seconds: float, until: Callable[[], bool] = lambda: False
) -> bool:
    """Draw for so long, or until the condition holds; whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if until():
            return True
        table.draw()
        time.sleep(1.0)
    return until()
