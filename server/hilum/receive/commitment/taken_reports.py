"""Reports to our own requests for storage commitment (PS3.4 J.3.3), as SCU.

A report comes over the association of its request, or over one that the SCP opens to any listener.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

from pydicom.dataset import Dataset
from sqlalchemy.exc import SQLAlchemyError

from hilum.dicom import command_set
from hilum.dicom.storage_commitment import (
    FAILURES_EXIST,
    STORAGE_COMMITMENT,
    SUCCESSFUL,
    WELL_KNOWN_INSTANCE,
)
from hilum.domain import CommitmentVerdict, RecordedReport, SopReference
from hilum.observability import telemetry
from hilum.receive.commitment.request import (
    INVALID_ARGUMENT,
    NO_SUCH_CLASS,
    NO_SUCH_EVENT,
    NO_SUCH_INSTANCE,
    RESOURCE_LIMITATION,
    UNRECOGNISED_OPERATION,
    CommitmentRefused,
    decoded,
    reference_of,
    references_of,
    require_uids,
    transaction_of,
)
from hilum.receive.statuses import StatusResponse
from hilum.settings import CStoreDestination, Settings
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

_UNSPECIFIC: Final = 0x0110  # processing failure: takes the place of a missing Failure Reason
_REMEMBERED: Final = 1000  # Transaction UIDs, so that a repeated report is logged once


class TakenReports:
    """Takes the reports of all associations of a process; safe to use from any thread."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        destinations = settings.destinations
        self.scps = frozenset(
            title for item in destinations.values() for title in item.commitment_scps
        )
        self._tries = {
            name: item.commitment_tries
            for name, item in destinations.items()
            if isinstance(item, CStoreDestination)
        }
        self._unknown: dict[str, None] = {}
        self._lock = threading.Lock()

    def take(
        self, command: Mapping[int, bytes], transfer_syntax_uid: str, encoded: bytes, ae_title: str
    ) -> StatusResponse | None:
        """Record an N-EVENT-REPORT of this AE Title, and return its failure; None: success.

        A success is durable.
        """
        failure: StatusResponse | None = None
        try:
            self._take(command, transfer_syntax_uid, encoded, ae_title.strip())
        except CommitmentRefused as refused:
            failure = refused.answer
        except SQLAlchemyError:
            failure = StatusResponse(
                RESOURCE_LIMITATION, "The ledger is not available; report again later"
            )
        telemetry.COMMITMENT_REPORTS.labels("0x0000" if failure is None else failure.label).inc()
        return failure

    def _take(
        self, command: Mapping[int, bytes], transfer_syntax_uid: str, encoded: bytes, ae_title: str
    ) -> None:
        self._require_scp(ae_title)
        _require_command(command)
        transaction_uid, verdict = decoded(
            encoded, transfer_syntax_uid, "Event Information", _read_report
        )
        references = (*verdict.committed, *(item for item, _ in verdict.failed))
        if not references:
            raise CommitmentRefused(
                INVALID_ARGUMENT, "The report names no object: both sequences are missing"
            )
        require_uids(transaction_uid, references)
        done = self._ledger.record_commitment_report(
            transaction_uid, ae_title, verdict, self._tries
        )
        if done is None:
            self._say_unknown(transaction_uid)
            raise CommitmentRefused(
                INVALID_ARGUMENT, "Transaction UID (0008,1195) is not of an open request of ours"
            )
        _say(done, transaction_uid)

    def _require_scp(self, ae_title: str) -> None:
        if ae_title not in self.scps:
            raise CommitmentRefused(
                UNRECOGNISED_OPERATION, "This AE Title was not asked for storage commitment"
            )

    def _say_unknown(self, transaction_uid: str) -> None:
        """Log it once: the SCP may repeat its report for days."""
        with self._lock:
            if transaction_uid in self._unknown:
                return
            self._unknown[transaction_uid] = None
            if len(self._unknown) > _REMEMBERED:
                del self._unknown[next(iter(self._unknown))]
        _log.warning(
            "commitment_report_unknown",
            transaction_uid=transaction_uid,
            advice="it reports storage commitment to no request of ours: see why there",
        )


def _require_command(command: Mapping[int, bytes]) -> None:
    if command_set.text(command.get(command_set.AFFECTED_SOP_CLASS_UID)) != STORAGE_COMMITMENT:
        raise CommitmentRefused(
            NO_SUCH_CLASS, "Affected SOP Class UID is not Storage Commitment Push Model"
        )
    if command_set.text(command.get(command_set.AFFECTED_SOP_INSTANCE_UID)) != WELL_KNOWN_INSTANCE:
        raise CommitmentRefused(
            NO_SUCH_INSTANCE, f"Affected SOP Instance UID must be {WELL_KNOWN_INSTANCE}"
        )
    event_type = command_set.number(command.get(command_set.EVENT_TYPE_ID))
    if event_type not in (SUCCESSFUL, FAILURES_EXIST):
        raise CommitmentRefused(NO_SUCH_EVENT, "Event Type ID must be 1 or 2")


def _read_report(information: Dataset) -> tuple[str, CommitmentVerdict]:
    return transaction_of(information), CommitmentVerdict(
        tuple(references_of(information, "ReferencedSOPSequence")),
        tuple(_failures_of(information)),
    )


def _failures_of(information: Dataset) -> Iterator[tuple[SopReference, int]]:
    for item in information.get("FailedSOPSequence") or ():
        reason = item.get("FailureReason")
        yield reference_of(item), _UNSPECIFIC if reason is None else int(reason)


def _say(done: RecordedReport, transaction_uid: str) -> None:
    """Log a report that has changed something, and the faults of it."""
    outcomes = {"committed": done.committed, "not_kept": done.resent, "given_up": done.dead}
    for outcome, count in outcomes.items():
        telemetry.DELIVERY_COMMITMENTS.labels(done.destination, outcome).inc(count)
    said = {"destination": done.destination, "transaction_uid": transaction_uid}
    if any(outcomes.values()):
        _log.info("commitment_reported", **said, **outcomes)
    if done.unasked or done.missing:
        _log.warning(
            "commitment_report_differs",
            **said,
            unasked=done.unasked,
            missing=done.missing,
            advice="a report names all objects of its request and no others; ask its vendor",
        )
