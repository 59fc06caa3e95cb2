"""commit: whoever asked for storage commitment, and has an address in the settings, gets his report (PS3.4 annex J)."""

from __future__ import annotations

import asyncio
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

from hilum.deliver.tls import tls_of
from hilum.domain import Advance, CommitmentJob, Job
from hilum.errors import Refused, Retry
from hilum.receive.commitment_peer import report_to
from hilum.receive.commitment_report import no_address
from hilum.receive.custody import Custody
from hilum.settings import CommitmentPeer, Settings
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger

_THREADS = 4  # an asker that is away holds one for its time-out
_LONGEST_PAUSE_SECONDS = 600.0


def _tls_of(peer: CommitmentPeer) -> tuple[ssl.SSLContext, str] | None:
    """Raises Retry."""
    tls = tls_of(peer)
    return None if tls is None else (tls.context(), tls.server_name)


class CommitHandler:
    """One for a dispatcher."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._peers = {title.strip(): peer for title, peer in settings.commitment.items()}
        self._custody = Custody(ledger, Archive(settings.archive_dir), settings.receive.commitment_wait_seconds)
        self._backoff_seconds = settings.pipeline.backoff_seconds
        self._give_up_seconds = 3600 * settings.receive.commitment_hours
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="commitment")

    async def handle(self, job: Job) -> Advance:
        """One request."""
        assert isinstance(job, CommitmentJob)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._report, job)

    def _report(self, job: CommitmentJob) -> Advance:
        peer = self._peers.get(job.request.calling_ae_title)
        if peer is None:
            raise no_address(job)
        verdict = self._custody.verdict(job)
        try:
            return report_to(peer, job, verdict, _tls_of(peer))
        except Retry as error:
            raise self._later(job, error) from error

    def _later(self, job: CommitmentJob, error: Retry) -> Retry | Refused:
        """A pause that grows with the age of the request; at last a person."""
        age = time.time() - job.requested_at
        if age > self._give_up_seconds:
            return Refused("not_reported", f"tried for {age / 3600:.1f} h; the last: {error.detail}")
        pause = min(_LONGEST_PAUSE_SECONDS, max(self._backoff_seconds, age / 2))
        return Retry(error.detail, after_seconds=pause, is_outage=True)

    def close(self) -> None:
        """End the threads; what is on the wire is finished."""
        self._threads.shutdown()
