"""Recovery after this host's clock was set back.

Rows would otherwise wait until the clock shows the old time again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from hilum.observability import telemetry
from hilum.pipeline import delivery_stage
from hilum.settings import CStoreDestination, Settings
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger
from hilum.store.queue.clock_recovery import SKEW_SECONDS

_STEP_SECONDS = 5.0  # smaller steps have no visible effect
_JITTER = 1.25  # of a pause between attempts
# the longest wait of a comparison for its shadow, or of a storage commitment for its objects
_PATIENCE_SECONDS = 3600.0
# more than a pause between two requests for storage commitment, or the time of one
_COMMITMENT_SECONDS = 86_400.0
_log = telemetry.logger("supervisor")


def longest_waits(settings: Settings) -> Mapping[str, float]:
    """Return the largest number of seconds, by stage, until a row is due or its lease ends."""
    own = [rule.then.quiet_seconds for rule in settings.rules_in_use]
    quiet = max(settings.studies.quiet_seconds, *(seconds or 0.0 for seconds in own), 0.0)
    pause = _JITTER * max(
        settings.pipeline.maximum_backoff_seconds, settings.pipeline.backoff_seconds
    )
    leases = [delivery_stage(item).lease_seconds for item in settings.destinations.values()]
    return {
        "analyse": pause,
        "report": pause,
        "deliver": max([pause, *leases]),
        "assemble": max(quiet, pause),
        "compare": max(quiet, pause, _PATIENCE_SECONDS),
        "commit": max(pause, _PATIENCE_SECONDS),
    }


def longest_commitment(settings: Settings) -> float:
    """Return the largest number of seconds until a destination is asked for a document again."""
    hours = [
        item.commitment_hours
        for item in settings.destinations.values()
        if isinstance(item, CStoreDestination)
    ]
    return max([_COMMITMENT_SECONDS, *(3600.0 * item for item in hours)])


class ClockStepMonitor:
    """A watch for clock steps. `look` runs at each beat.

    The first `look`, at the start, finds rows left by an earlier run.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waits = longest_waits(settings)
        self._commitment = longest_commitment(settings)
        self._clock = clock
        self._steady = steady
        self._ahead = math.inf
        self._is_owed = True
        self._is_behind = False

    def look(self, ledger: Ledger) -> None:
        """Reschedule rows that are due too late after a clock step.

        A host that is behind the clock of its PostgreSQL frees none: the waits there may be right.
        """
        ahead = self._clock() - self._steady()
        if ahead < self._ahead - _STEP_SECONDS:
            self._is_owed = True
        self._ahead = ahead
        if not self._is_owed:
            return
        try:
            lag = -ledger.clock_ahead_seconds()
            if lag > SKEW_SECONDS:
                self._say_behind(lag)
                return
            freed = {
                stage: count
                for stage, longest in self._waits.items()
                if (count := ledger.reschedule_after_clock_step(stage, longest))
            }
            if count := ledger.reschedule_commitments_after_clock_step(self._commitment):
                freed["commitments"] = count
        except AWAY as error:
            _log.warning(
                "clock_check_failed", error=error_text(error), advice="tried again at the next beat"
            )
            return
        self._is_owed = self._is_behind = False
        if freed:
            _log.warning(
                "clock_set_back",
                **freed,
                advice=(
                    "rows that waited for a later time are due; have the clock kept right (NTP)"
                ),
            )

    def _say_behind(self, lag: float) -> None:
        if not self._is_behind:
            _log.warning(
                "clock_behind",
                seconds=round(lag),
                advice="the ledger's host shows a later time: set one of the two right (NTP)",
            )
        self._is_behind = True
