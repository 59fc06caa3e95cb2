"""The supervisor's regular comparison of this host's clock with the ledger's."""

from __future__ import annotations

import time

from hilum.observability import telemetry
from hilum.store.database.clocks import DIFFERS_SECONDS, ClockReading
from hilum.store.ledger import Ledger

_LOOK_SECONDS = 15.0
_log = telemetry.logger("supervisor")


class ClockMonitor:
    """A comparison of clocks that logs once when they differ, and once when they agree again.

    `reading`: the last one; None: none yet, or a ledger without a clock of its own.
    """

    def __init__(self, tolerance_seconds: float = DIFFERS_SECONDS) -> None:
        self.reading: ClockReading | None = None
        self._tolerance_seconds = tolerance_seconds
        self._next_look = float("-inf")
        self._differs = False

    def look(self, ledger: Ledger) -> None:
        """Compare the clocks if it is time to; the first time at once. Raises one of `AWAY`."""
        if time.monotonic() < self._next_look:
            return
        self.reading = ledger.clock_reading()
        ahead = 0.0 if self.reading is None else self.reading.certain_seconds
        self._next_look = time.monotonic() + _LOOK_SECONDS
        if (differs := abs(ahead) > self._tolerance_seconds) == self._differs:
            return
        self._differs = differs
        if differs:
            advice = (
                "keep time by NTP on every host, the database's included: reports may be made"
                " twice, and work be taken from its host"
            )
            _log.error("clock_differs", ahead_of_ledger_seconds=round(ahead, 1), advice=advice)
        else:
            _log.info("clock_agrees")
