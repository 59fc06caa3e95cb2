"""Circuit breaker of a source: after two outages in a row, one request at a time probes it."""

from __future__ import annotations

from typing import Final

from hilum.backoff import Backoff

_PAUSES: Final = Backoff(60.0, 1800.0)
_OUTAGES: Final = 2
# A permit for the probe that was not used is given again after this.
_PERMIT_SECONDS: Final = 60.0


class SourceBreaker:
    """Whether a source is away. Times are seconds since the epoch.

    Unlike `hilum.deliver.circuit_breaker` it knows no documents, and it does not ask itself.
    """

    def __init__(self, pauses: Backoff = _PAUSES) -> None:
        self._pauses = pauses
        self._outages = 0
        self._began = 0.0
        self._until = 0.0
        self.reason = ""

    def closed_until(self, now: float) -> float | None:
        """Return until when it may not be asked; None: it may.

        Between outages, None is the permit for one probe, and the next call returns a time.
        """
        if self._outages < _OUTAGES:
            return None
        if self._began <= now < self._until:
            return self._until
        self._began = now
        self._until = now + _PERMIT_SECONDS
        return None

    def ended(self, now: float, *, is_outage: bool) -> None:
        """Count a request: an answer of any kind ends the outage."""
        if not is_outage:
            self._outages = 0
            return
        self._outages += 1
        if self._outages < _OUTAGES:
            return
        pause = self._pauses.after(self._outages - _OUTAGES + 1)
        self._began = now
        self._until = now + pause
        self.reason = (
            f"no answer {self._outages} times in a row: the next try after {pause / 60:.0f} minutes"
        )
