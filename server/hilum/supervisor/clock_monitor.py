"""The supervisor's regular comparison of this host's clock with the ledger's."""

from __future__ import annotations

import time

from hilum.observability import telemetry
from hilum.store.database.clocks import DIFFERS_SECONDS
from hilum.store.ledger import Ledger

_LOOK_SECONDS = 60.0
_log = telemetry.logger("supervisor")


class ClockMonitor:
    """A comparison of clocks that logs once when they differ, and once when they agree again."""

    def __init__(self) -> None:
        self._next_look = float("-inf")
        self._differs = False

    def look(self, ledger: Ledger) -> None:
        """Compare the clocks if it is time to; the first time at once. Raises one of `AWAY`."""
        if time.monotonic() < self._next_look:
            return
        ahead = ledger.clock_ahead_seconds()
        self._next_look = time.monotonic() + _LOOK_SECONDS
        if (differs := abs(ahead) > DIFFERS_SECONDS) == self._differs:
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
