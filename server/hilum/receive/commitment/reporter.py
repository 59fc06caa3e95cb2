"""Reports of storage commitment: their sender is the dispatcher or this process.

The dispatcher reports to an address of the settings. Without one, this process reports over the
association.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import Advance, CommitmentJob, CommitmentRequest, CommitmentVerdict
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.receive.commitment.report import dead, no_address
from hilum.receive.commitment.request import RESOURCE_LIMITATION, CommitmentRefused
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.receive.threads import start_thread
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.store.queue.commitments import LeaseOwner

_log = telemetry.logger("receive")

_MAXIMUM_REPORTING = 64  # threads that wait for objects or for a response
# of a lease, in addition to all waits: a sender that goes on storing is not quiet. A dying process
# releases its leases
_GRACE_SECONDS = 3600.0


class Requester(Protocol):
    """The association of a request."""

    @property
    def is_open(self) -> bool:
        """Whether a report may still go over it."""

    def report(self, transaction_uid: str, verdict: CommitmentVerdict, seconds: float) -> Advance:
        """Return when the requester has responded, within so many seconds.

        Raises Retry or Refused.
        """


class CommitmentReporter:
    """The commitment service of a listener.

    `owner`: the name under which it leases reports that it sends itself.
    """

    def __init__(
        self, settings: Settings, ledger: Ledger, safekeeping: Safekeeping, owner: str
    ) -> None:
        self._addresses = {title.strip() for title in settings.commitment}
        self._ledger = ledger
        self._safekeeping = safekeeping
        self._answer_seconds = settings.receive.dimse_timeout_seconds
        self._holder = LeaseOwner(
            owner, safekeeping.wait_seconds + self._answer_seconds + _GRACE_SECONDS
        )
        self._places = threading.BoundedSemaphore(_MAXIMUM_REPORTING)

    def take(self, request: CommitmentRequest, requester: Requester) -> None:
        """Return when the report is recorded. Raises CommitmentRefused, SQLAlchemyError."""
        if request.calling_ae_title in self._addresses:
            self._ledger.request_commitment(request)
            return
        if not self._places.acquire(blocking=False):
            raise CommitmentRefused(
                RESOURCE_LIMITATION, "Too many requests wait for their reports; ask again later"
            )
        owed: queue.SimpleQueue[CommitmentJob | None] = queue.SimpleQueue()
        try:
            # before the row: without a thread to report, the row would stay leased
            start_thread("commitment", self._report_owed, owed, requester)
        except RuntimeError:  # raised by threading
            self._places.release()
            raise CommitmentRefused(
                RESOURCE_LIMITATION, "No thread is left for the report; ask again later"
            ) from None
        job = None
        try:
            job = self._ledger.request_commitment(request, self._holder)
        finally:
            owed.put(job)

    def _report_owed(
        self, owed: queue.SimpleQueue[CommitmentJob | None], requester: Requester
    ) -> None:
        """Report a job; None: its row could not be written, so there is no report."""
        try:
            if (job := owed.get()) is not None:
                self._report(job, requester)
        finally:
            self._places.release()

    def _report(self, job: CommitmentJob, requester: Requester) -> None:
        try:
            self._ledger.advance("commit", [(job.lease, self._decide(job, requester))])
        except SQLAlchemyError as error:
            _log.error(
                "commitment_not_written",
                problem=type(error).__name__,
                advice="reported again when the lease has lapsed",
            )

    def _decide(self, job: CommitmentJob, requester: Requester) -> Advance:
        try:
            return requester.report(
                job.request.transaction_uid, self._verdict(job, requester), self._answer_seconds
            )
        except Refused as error:
            return dead(error)
        except Retry as error:
            return dead(no_address(job, f"{error.detail}; "))

    def _verdict(self, job: CommitmentJob, requester: Requester) -> CommitmentVerdict:
        while True:
            try:
                return self._safekeeping.verdict(job)
            except Retry as later:
                if not requester.is_open:
                    raise
                time.sleep(later.after_seconds or 1.0)
