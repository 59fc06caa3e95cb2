"""Asks a destination to commit to keep the documents that it has accepted (PS3.4 annex J).

One loop a destination, which asks in one request at a time. It holds the destination's lease, so
that no other dispatcher asks, and nothing is asked while a person has paused it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Final

from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.backoff import Backoff
from hilum.deliver.cstore import commitment_peer
from hilum.deliver.scu.association import Peer, ScuAssociation, associate
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.domain import AskedCommitment, CommitmentVerdict
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.one_thread import OneThread
from hilum.receive.commitment.report import encoded_information
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.settings import CStoreDestination, DicomDestination, Pipeline
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger
from hilum.store.queue.asked_commitments import AskedScp

log = telemetry.logger("deliver")

_SYNTAXES: Final = (ExplicitVRLittleEndian, ImplicitVRLittleEndian)
_MESSAGES: Final = 6  # of one request, that may each take the time limit
_GRACE_SECONDS: Final = 60.0
_REFUSED_SECONDS: Final = 3600.0  # a person needs time to enable it there
_LONGEST_AWAY_SECONDS: Final = 600.0
_CLOSE_SECONDS: Final = 10.0
_SUCCESS: Final = 0x0000
# PS3.7 10.1.4.1.10
_MEANING: Final[Mapping[int, str]] = {
    0x0110: "processing failure",
    0x0112: "no such SOP Instance",
    0x0115: "invalid argument",
    0x0118: "it does not support Storage Commitment",
    0x0123: "no such action",
    0x0124: "our AE Title may not ask",
    0x0211: "it does not support Storage Commitment",
    0x0213: "resource limitation",
}


class CommitmentLoop:
    """Serves the documents of one destination until `stop`."""

    problem = ""

    def __init__(
        self,
        name: str,
        destination: CStoreDestination,
        ledger: Ledger,
        settings: Pipeline,
        owner: str,
        reports: TakenReports,
    ) -> None:
        self._name = name
        self._destination = destination
        self._ledger = ledger
        self._settings = settings
        self._owner = owner
        self._reports = reports
        title = "" if not destination.has_one_place else next(iter(destination.commitment_scps))
        self._scp = AskedScp(name, title, destination.commitment_tries)
        self._lease_seconds = (
            _MESSAGES * destination.timeout_seconds
            + destination.commitment_wait_seconds
            + _GRACE_SECONDS
        )
        self._away = Backoff(settings.backoff_seconds, _LONGEST_AWAY_SECONDS, jitter=0.25)
        self._failures = 0
        self._not_before = 0.0
        self._stopping = threading.Event()
        self._wake = asyncio.Event()
        self._thread = OneThread(f"commitment-{name}")

    async def run(self) -> None:
        """Ask whenever documents are due, until `stop`."""
        while not self._stopping.is_set():
            try:
                pause = await self._thread.call(self.turn)
            except AWAY as error:
                log.error(
                    "ledger_unavailable",
                    stage="commitment",
                    error=error_text(error),
                    advice="its destination is asked later",
                )
                pause = self._settings.poll_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
        self._thread.close(_CLOSE_SECONDS)

    def stop(self) -> None:
        """Ask no more. Call it in the loop's thread."""
        self._stopping.set()
        self._wake.set()

    def turn(self) -> float:
        """Send one request if documents are due; return the seconds until the next look.

        Raises the errors of a ledger that is away.
        """
        poll = self._settings.poll_seconds
        due_in = self._ledger.seconds_to_commitment(self._name)
        if due_in is None or due_in > 0:
            return poll if due_in is None else min(poll, due_in)
        if (left := self._not_before - time.monotonic()) > 0:
            return min(poll, left)
        if not self._ledger.acquire_destination(self._name, self._owner, self._lease_seconds):
            return poll
        if self._give_up():
            return 0.0
        request = self._ledger.begin_commitment(self._scp, self._lease_seconds)
        if request is None:
            return poll
        self._try(request)
        return 0.0

    def _try(self, request: AskedCommitment) -> None:
        """Ask; a bug that one request meets must not stop the reports of this process."""
        try:
            self._ask(request)
        except AWAY:
            raise
        except Exception as error:
            log.error("commitment_failed", destination=self._name, exc_info=error)
            problem = f"unexpected {type(error).__name__}; see the log"
            self._put_off(request.transaction_uid, problem, _REFUSED_SECONDS, was_sent=True)

    def _give_up(self) -> bool:
        """Return whether documents were given up; there may be more."""
        unanswered = (
            f"asked {self._scp.tries} times, and no report came within"
            f" {self._destination.commitment_hours:g} h: let it open associations to our listener,"
            " and enter our host, port and AE Title there; then requeue the delivery"
        )
        count = self._ledger.give_up_commitments(self._scp, unanswered)
        if count:
            telemetry.DELIVERY_COMMITMENTS.labels(self._name, "given_up").inc(count)
            log.error(
                "commitment_given_up",
                destination=self._name,
                documents=count,
                advice="`hilum destinations list` shows why; mend it, then requeue",
            )
        return count > 0

    def _ask(self, request: AskedCommitment) -> None:
        """Send a request, and write down its outcome."""
        telemetry.DELIVERY_COMMITMENTS.labels(self._name, "asked").inc(len(request.references))
        uid = request.transaction_uid
        try:
            association = self._associated(request)
        except Refused as error:
            self._put_off(uid, error.detail, _REFUSED_SECONDS, was_sent=True)
            return
        except Retry as error:
            self._failures += 1
            pause = self._away.after(self._failures)
            self._put_off(uid, error.detail, pause, was_sent=False)
            if self._destination.has_one_place:
                self._not_before = time.monotonic() + pause
            return
        self._failures = 0
        try:
            self._converse(association, request)
        except Retry as error:
            self._put_off(uid, error.detail, _REFUSED_SECONDS, was_sent=True)
        finally:
            association.release()

    def _associated(self, request: AskedCommitment) -> ScuAssociation:
        """Raises Retry or Refused."""
        place = self._destination.for_sender(request.peer_address, request.calling_ae_title)
        if not isinstance(place, DicomDestination):
            raise Refused("address_refused", "its settings name no port for the study's sender")
        peer = commitment_peer(place)
        try:
            return associate(peer, [(STORAGE_COMMITMENT, syntax) for syntax in _SYNTAXES])
        except Refused as error:
            raise Refused(error.reason, _not_offered(peer)) from error

    def _converse(self, association: ScuAssociation, request: AskedCommitment) -> None:
        """Send the request and await its report. Raises Retry."""
        uid = request.transaction_uid
        has_come = False

        def take(
            elements: Mapping[int, bytes], transfer_syntax_uid: str, encoded: bytes
        ) -> tuple[int, str]:
            nonlocal has_come
            has_come = True
            failure = self._reports.take(elements, transfer_syntax_uid, encoded, request.ae_title)
            return (_SUCCESS, "") if failure is None else (failure.status, failure.comment)

        context = association.accepted[0]
        verdict = CommitmentVerdict(request.references, ())
        information = encoded_information(uid, verdict, context.transfer_syntax_uid)
        status = association.request_commitment(context, information, take).status
        if status != _SUCCESS:
            self._put_off(
                uid, _refused(str(association.peer), status), _REFUSED_SECONDS, was_sent=True
            )
            return
        self._ledger.commitment_asked(uid, 3600 * self._destination.commitment_hours)
        if not has_come:
            association.await_event(
                self._destination.commitment_wait_seconds, take, self._stopping.is_set
            )

    def _put_off(self, uid: str, detail: str, seconds: float, *, was_sent: bool) -> None:
        longest = 3600 * self._destination.commitment_hours
        pause = min(seconds, longest)
        self._ledger.put_off_commitment(uid, detail, pause, was_sent=was_sent)
        log.warning(
            "commitment_not_asked",
            destination=self._name,
            detail=detail,
            advice=f"asked again in {pause:.0f} s",
        )


def _not_offered(peer: Peer) -> str:
    return (
        f"{peer} does not accept Storage Commitment Push Model: enable it for our AE Title"
        f" {peer.calling_ae_title} there, or set commitment = false; then requeue the delivery"
    )


def _refused(peer: str, status: int) -> str:
    meaning = _MEANING.get(status, "its log may say why")
    return (
        f"{peer} answered the request for storage commitment with 0x{status:04X}, {meaning}: see"
        " its log, then requeue the delivery"
    )
