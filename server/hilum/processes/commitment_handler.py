"""commit: sends the storage commitment report (PS3.4 annex J) to each requester.

The requester needs an address in the settings.
"""

from __future__ import annotations

import asyncio
import functools
import time
from concurrent.futures import ThreadPoolExecutor

from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.deliver.scu.association import Peer, ScuAssociation, associate
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.dicom.tls_client import tls_of
from hilum.domain import Advance, CommitmentJob, CommitmentVerdict, Job
from hilum.errors import Refused, Retry
from hilum.receive.commitment.report import answered, encoded_information, event_type_of, no_address
from hilum.receive.commitment.report import command_of as report_command
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.settings import CommitmentPeer, Settings
from hilum.store.archive.archives import open_archive
from hilum.store.ledger import Ledger

_SYNTAXES = (ExplicitVRLittleEndian, ImplicitVRLittleEndian)
_THREADS = 4  # a requester that is away holds one for its time-out
_LONGEST_PAUSE_SECONDS = 600.0


def _report_to(peer: CommitmentPeer, job: CommitmentJob, verdict: CommitmentVerdict) -> Advance:
    """Send a report on an association of our own, in which we are the SCP.

    Return when the requester has responded. The Calling AE Title is the Called AE Title of the
    request, which its sender knows. Raises Retry or Refused.
    """
    request = job.request
    titles = peer.ae_title or request.calling_ae_title, request.called_ae_title
    requester = Peer(peer.host, peer.port, *titles, peer.timeout_seconds, tls_of(peer, peer.host))
    association = _associated(requester)
    try:
        context = association.accepted[0]
        information = encoded_information(
            request.transaction_uid, verdict, context.transfer_syntax_uid
        )
        command_of = functools.partial(report_command, event_type_of(verdict))
        return answered(association.event_report(context, command_of, information), verdict)
    finally:
        association.release()


def _associated(requester: Peer) -> ScuAssociation:
    try:
        return associate(
            requester,
            [(STORAGE_COMMITMENT, syntax) for syntax in _SYNTAXES],
            scp_of=[STORAGE_COMMITMENT],
        )
    except Refused as error:
        advice = "does not take Storage Commitment with us as SCP; enable it there, then requeue"
        raise Refused(error.reason, f"{requester} {advice}") from error


class CommitHandler:
    """The handler of the stage, one for a dispatcher."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._peers = {title.strip(): peer for title, peer in settings.commitment.items()}
        self._custody = Safekeeping(
            ledger, open_archive(settings), settings.receive.commitment_wait_seconds
        )
        self._backoff_seconds = settings.pipeline.backoff_seconds
        self._give_up_seconds = 3600 * settings.receive.commitment_hours
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="commitment")

    async def handle(self, job: Job) -> Advance:
        """Handle one request."""
        assert isinstance(job, CommitmentJob)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._report, job)

    def _report(self, job: CommitmentJob) -> Advance:
        peer = self._peers.get(job.request.calling_ae_title)
        if peer is None:
            raise no_address(job)
        verdict = self._custody.verdict(job)
        try:
            return _report_to(peer, job, verdict)
        except Retry as error:
            raise self._later(job, error) from error

    def _later(self, job: CommitmentJob, error: Retry) -> Retry | Refused:
        """Return a Retry whose pause grows with the age of the request, or at last a Refused."""
        age = time.time() - job.requested_at
        if age > self._give_up_seconds:
            return Refused(
                "not_reported", f"tried for {age / 3600:.1f} h; the last: {error.detail}"
            )
        pause = min(_LONGEST_PAUSE_SECONDS, max(self._backoff_seconds, age / 2))
        return Retry(error.detail, after_seconds=pause, is_outage=True)

    def close(self) -> None:
        """End the threads; messages in progress are finished."""
        self._threads.shutdown()
