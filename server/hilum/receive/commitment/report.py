"""The report of a storage commitment (PS3.4 J.3.3), and the meaning of its response."""

from __future__ import annotations

from collections.abc import Mapping

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import UID
from pynetdicom.dsutils import encode

from hilum.dicom import command_set
from hilum.dicom.storage_commitment import (
    FAILURES_EXIST,
    STORAGE_COMMITMENT,
    SUCCESSFUL,
    WELL_KNOWN_INSTANCE,
)
from hilum.domain import Advance, CommitmentJob, CommitmentState, CommitmentVerdict, SopReference
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.store.queue.commitments import reported

# PS3.7 10.1.1.1.8: the failures that may pass by themselves.
_PASSING: Mapping[int, str] = {0x0110: "processing failure", 0x0213: "resource limitation"}


def event_type_of(verdict: CommitmentVerdict) -> int:
    """Return the Event Type ID."""
    return FAILURES_EXIST if verdict.failed else SUCCESSFUL


def encoded_information(
    transaction_uid: str, verdict: CommitmentVerdict, transfer_syntax_uid: str
) -> bytes:
    """Return the Event Information (PS3.4 Table J.3-2), encoded."""
    syntax = UID(transfer_syntax_uid)
    information = information_of(transaction_uid, verdict)
    encoded: bytes | None = encode(
        information, syntax.is_implicit_VR, syntax.is_little_endian, syntax.is_deflated
    )
    assert encoded is not None, "UIDs and numbers of our own can be encoded"
    return encoded


def information_of(transaction_uid: str, verdict: CommitmentVerdict) -> Dataset:
    """Return the Event Information (PS3.4 Table J.3-2)."""
    information = Dataset()
    information.TransactionUID = transaction_uid
    if verdict.committed:
        information.ReferencedSOPSequence = Sequence(
            [_item(reference) for reference in verdict.committed]
        )
    if verdict.failed:
        information.FailedSOPSequence = Sequence(
            [_item(reference, reason) for reference, reason in verdict.failed]
        )
    return information


def _item(reference: SopReference, reason: int | None = None) -> Dataset:
    item = Dataset()
    item.ReferencedSOPClassUID = reference.sop_class_uid
    item.ReferencedSOPInstanceUID = reference.sop_instance_uid
    if reason is not None:
        item.FailureReason = reason
    return item


def command_of(event_type: int, message_id: int) -> bytes:
    """Return the command set of an N-EVENT-REPORT-RQ with a data set (PS3.7 10.3.1.1)."""
    return command_set.encode(
        {
            command_set.AFFECTED_SOP_CLASS_UID: command_set.uid(STORAGE_COMMITMENT),
            command_set.COMMAND_FIELD: command_set.us(command_set.N_EVENT_REPORT_RQ),
            command_set.MESSAGE_ID: command_set.us(message_id),
            command_set.COMMAND_DATA_SET_TYPE: command_set.us(command_set.HAS_DATA_SET),
            command_set.AFFECTED_SOP_INSTANCE_UID: command_set.uid(WELL_KNOWN_INSTANCE),
            command_set.EVENT_TYPE_ID: command_set.us(event_type),
        }
    )


def answered(status: int | None, verdict: CommitmentVerdict) -> Advance:
    """Return the outcome of the response's status; None: there was none.

    Raises Retry or Refused.
    """
    if status is None:
        raise Retry("sent, and no answer came: the same report goes again")
    if status in _PASSING:
        raise Retry(f"answered 0x{status:04X}, {_PASSING[status]}")
    if status != 0:
        raise Refused(
            "report_refused",
            f"answered 0x{status:04X}: the requester does not take its report; see its log, then"
            " requeue",
        )
    _count(verdict)
    return Advance(CommitmentState.REPORTED, reported(verdict))


def no_address(job: CommitmentJob, before: str = "") -> Refused:
    """Return the Refused of a report without an address."""
    title = job.request.calling_ae_title
    advice = (
        f"no address for the AE Title {title}: give host and port in [commitment.{title}], then"
        " requeue"
    )
    return Refused("no_address", f"{before}{advice}")


def dead(refused: Refused) -> Advance:
    """Return the outcome of a report that a person has to look at."""
    return Advance(CommitmentState.DEAD, {"reason": refused.reason, "detail": refused.detail})


def _count(verdict: CommitmentVerdict) -> None:
    telemetry.COMMITMENT_INSTANCES.labels("committed").inc(len(verdict.committed))
    for _, reason in verdict.failed:
        telemetry.COMMITMENT_INSTANCES.labels(f"0x{reason:04X}").inc()
