"""Circuit breaker for a destination: while it is down, one document at a time probes it.

The interval between probes grows; the other documents stay queued.
"""

from __future__ import annotations

import time
from typing import Final

from hilum.deliver import DestinationClient, Probe, ReceiverBusy
from hilum.domain import Document
from hilum.errors import ReceiverGone, Refused, Retry
from hilum.observability import telemetry
from hilum.pipeline import back_off
from hilum.settings import Pipeline

log = telemetry.logger("deliver")

# a receiver that is back soon gets its queue, and a probe costs little
_LONGEST_PAUSE_SECONDS: Final = 30.0
# as many as are claimed together: if so many in a row get this response, the document is not the
# cause
_BUSY_DOCUMENTS: Final = 8
# in an outage: one may be busy because of itself, and the next one shows it
_BUSY_PROBES: Final = 2


class CircuitBreaker:
    """A client that sends nothing between the probes of an outage.

    It runs in the client's thread, except `is_open`. The reasons:
    docs/decisions/circuit-breaker-probes-with-one-document.md.
    """

    def __init__(self, name: str, client: DestinationClient, settings: Pipeline) -> None:
        self._name = name
        self._client = client
        self._settings = settings
        self._probes = 0
        self._began = 0.0
        self._open_until = 0.0
        self._detail = ""
        # ids of documents that got the busy response, one after the other
        self._busy: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether a document would only be given back; in any thread."""
        return self._seconds_left() > 0

    @property
    def is_away(self) -> bool:
        """Whether the last probe failed."""
        return self._probes > 0

    def deliver(self, document: Document) -> None:
        """Deliver as `DestinationClient.deliver`.

        The Retry of an outage contains the time of the next probe, also for documents between two
        probes.
        """
        if self.is_open:
            raise Retry(self._detail, after_seconds=self._seconds_left(), is_outage=True)
        try:
            self._client.deliver(document)
        except ReceiverBusy as error:
            judged = self._after_busy(error, document)
            if judged is error:
                raise
            raise judged from error
        except Retry as error:
            if error.is_outage:
                raise self._open(error) from error
            self._has_answered()
            raise
        except Refused:
            self._has_answered()
            raise
        self._has_answered()

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Probe as `DestinationClient.probe`."""
        return self._client.probe(limit_seconds)

    def close(self) -> None:
        """Close as `DestinationClient.close`."""
        self._client.close()

    def _after_busy(self, error: ReceiverBusy, document: Document) -> Retry:
        """Return the error for a document that got the busy response, or none.

        It is an outage when enough different documents got it one after the other. One document
        that always gets it must not hold back the others. Within an outage its first try does not
        count: the receiver is more likely the cause, and a night of it must not wear out a queue.
        """
        is_first = document.id not in self._busy
        self._busy.add(document.id)
        if len(self._busy) >= (_BUSY_PROBES if self.is_away else _BUSY_DOCUMENTS):
            return self._open(error)
        if self.is_away and is_first:
            return Retry(error.detail, after_seconds=self._pause(error), is_outage=True)
        return error

    def _seconds_left(self) -> float:
        return self._open_until - time.monotonic()

    def _open(self, error: Retry) -> Retry:
        if self._probes == 0:
            self._began = time.monotonic()
            log.warning(
                "destination_unavailable",
                destination=self._name,
                detail=error.detail,
                advice="its documents wait; nothing is lost",
            )
        self._probes += 1
        self._busy.clear()
        pause = self._pause(error)
        self._detail = error.detail
        self._open_until = time.monotonic() + pause
        if isinstance(error, ReceiverGone):
            return ReceiverGone(error.detail, pause)
        return Retry(error.detail, after_seconds=pause, is_outage=True)

    def _pause(self, error: Retry) -> float:
        """Return the seconds until the next try; at least those it asks for (Retry-After)."""
        pause = min(_LONGEST_PAUSE_SECONDS, back_off(self._probes, self._settings))
        return max(pause, error.after_seconds or 0.0)

    def _has_answered(self) -> None:
        if self._probes:
            log.info(
                "destination_available",
                destination=self._name,
                seconds=round(time.monotonic() - self._began, 1),
                probes=self._probes,
            )
        self._probes = 0
        self._busy.clear()
